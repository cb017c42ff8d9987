package coord

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// planTest runs a plan whose attempts take no time.
type planTest struct {
	addressPlan
	now   time.Time
	start time.Time
}

func newPlanTest(addrs ...string) *planTest {
	start := time.Unix(1e9, 0)
	p := &planTest{now: start, start: start}
	p.addAll(addrs, start)
	return p
}

// expect checks which attempts begin at a time after the start, and that none begins before.
func (p *planTest) expect(t *testing.T, at time.Duration, want ...string) {
	t.Helper()
	next, ok := p.next()
	if !ok || !next.Equal(p.start.Add(at)) {
		t.Fatalf("the next attempt begins at %v, %t, want %v", next.Sub(p.start), ok, at)
	}
	p.now = next
	if got := p.begin(p.now); !slices.Equal(got, want) {
		t.Fatalf("at %v attempts begin at %v, want %v", at, got, want)
	}
}

// namedBy returns the error of a member that names addr.
func namedBy(addr string) error { return &DialError{Obstacle: ObstacleElsewhere, servedAt: addr} }

const planPause = 150 * time.Millisecond

func TestPlanStaggers(t *testing.T) {
	p := newPlanTest("a", "b", "c")
	p.expect(t, 0, "a")
	p.expect(t, attemptStagger, "b")
	p.failed("b", ErrUnavailable, nil, p.now, planPause)
	p.expect(t, attemptStagger, "c") // at once
	p.failed("c", ErrUnavailable, nil, p.now, planPause)
	p.expect(t, attemptStagger+planPause, "b", "c") // never at a, which is being tried
	if _, ok := p.next(); ok {
		t.Error("an attempt begins beside another one")
	}
	p.failed("a", ErrUnavailable, nil, p.now, planPause)
	p.expect(t, attemptStagger+2*planPause, "a")
}

func TestPlanOnce(t *testing.T) {
	p := newPlanTest("a")
	p.once = true
	p.expect(t, 0, "a")
	p.failed("a", namedBy("b"), nil, p.now, planPause)
	p.expect(t, 0, "b")
	p.failed("b", namedBy("a"), nil, p.now, planPause)
	if at, ok := p.next(); ok {
		t.Errorf("another attempt begins at %v", at)
	}
}

// TestPlanForward lets members name each other.
func TestPlanForward(t *testing.T) {
	p := newPlanTest("a", "b")
	p.expect(t, 0, "a")
	p.failed("a", namedBy("b"), nil, p.now, planPause)
	p.expect(t, 0, "b")
	p.failed("b", namedBy("a"), nil, p.now, planPause)
	p.expect(t, leastDelay, "a") // brought forward
	p.failed("a", namedBy("b"), nil, p.now, planPause)
	p.expect(t, leastDelay, "b") // brought forward too
	p.failed("b", namedBy("a"), nil, p.now, planPause)
	p.expect(t, leastDelay+planPause, "a", "b") // not again
	p.failed("a", ErrUnavailable, nil, p.now, planPause)
	p.failed("b", namedBy("a"), nil, p.now, planPause)
	p.expect(t, 2*leastDelay+planPause, "a") // now again
}

// TestPlanReserve checks that the address of a suspected connection is tried at its own time.
func TestPlanReserve(t *testing.T) {
	p := newPlanTest("a")
	p.list = append(p.list, &plannedAddress{addr: "same", due: p.start.Add(time.Second), reserve: true})
	p.expect(t, 0, "a")
	p.failed("a", namedBy("same"), nil, p.now, 2*time.Second)
	p.expect(t, time.Second, "same")
}

// TestPlanNamed has members name ever more addresses.
func TestPlanNamed(t *testing.T) {
	p := newPlanTest("a0")
	for i := range 3 * maxNamed {
		p.begin(p.now)
		p.failed(p.list[min(i, len(p.list)-1)].addr, namedBy(fmt.Sprint("b", i)), nil, p.now, time.Hour)
	}
	if len(p.list) != 1+maxNamed {
		t.Errorf("%d addresses, want %d", len(p.list), 1+maxNamed)
	}
}

func TestPlanDenied(t *testing.T) {
	p := newPlanTest("a", "b")
	one, two := errors.New("one"), errors.New("two")
	p.failed("b", two, two, p.now, planPause)
	if err := p.denied(); err != nil {
		t.Errorf("%v before an attempt at a", err)
	}
	p.failed("a", one, one, p.now, planPause)
	if err := p.denied(); !errors.Is(err, one) {
		t.Errorf("%v, want that of the first address", err)
	}
	p.failed("b", ErrUnavailable, nil, p.now, planPause)
	if err := p.denied(); err != nil {
		t.Errorf("%v after another answer", err)
	}
}

func TestPlanRefusedSince(t *testing.T) {
	p := newPlanTest("a", "b")
	nobody := &DialError{Obstacle: ObstacleRefused, Err: syscall.ECONNREFUSED}
	p.failed("a", nobody, nil, p.now, planPause)
	if since := p.refusedSince(); !since.IsZero() {
		t.Errorf("nobody listens since %v before an attempt at b", since)
	}
	before := time.Now()
	p.failed("b", nobody, nil, p.now, planPause)
	if since := p.refusedSince(); since.Before(before) {
		t.Errorf("nobody listens since %v, want the first attempt at b at %v", since, before)
	}
	p.failed("a", namedBy(""), nil, p.now, planPause)
	if since := p.refusedSince(); !since.IsZero() {
		t.Errorf("nobody listens since %v although a has answered", since)
	}
}

// FuzzPlan runs a plan with any answers. Each address has at most one attempt in progress, and none begins too often.
func FuzzPlan(f *testing.F) {
	f.Add("abcabcabc")
	f.Add("0a1b0a1b0a1b")
	f.Fuzz(func(t *testing.T, answers string) {
		p := newPlanTest("a", "b", "c")
		begun := map[string][]time.Time{}
		var trying []string
		for _, answer := range answers {
			if at, ok := p.next(); ok && at.After(p.now) {
				p.now = at
			}
			for _, addr := range p.begin(p.now) {
				if slices.Contains(trying, addr) {
					t.Fatalf("two attempts at %s", addr)
				}
				trying = append(trying, addr)
				begun[addr] = append(begun[addr], p.now)
			}
			if len(trying) == 0 {
				t.Fatal("no attempt begins any more")
			}
			addr := trying[0]
			trying = trying[1:]
			err := ErrUnavailable
			if strings.ContainsRune("abcdefghijklmnop", answer) {
				err = namedBy(string(answer))
			}
			p.failed(addr, err, nil, p.now, planPause)
		}
		for addr, times := range begun {
			for i := 2; i < len(times); i++ {
				if d := times[i].Sub(times[i-2]); d < planPause {
					t.Errorf("3 attempts at %s within %v", addr, d)
				}
			}
		}
	})
}

// TestPlanExpects tries an address soon, and again after short pauses, while the store is expected there.
func TestPlanExpects(t *testing.T) {
	p := newPlanTest("a")
	p.expect(t, 0, "a")
	p.failed("a", ErrUnavailable, nil, p.now, planPause)
	p.addressPlan.expect("a", p.now, p.start.Add(2*leastDelay))
	p.expect(t, leastDelay, "a") // not immediately: the last attempt has just ended
	p.failed("a", namedBy("a"), nil, p.now, planPause)
	p.expect(t, 2*leastDelay, "a")
	p.failed("a", ErrUnavailable, nil, p.now, planPause)
	p.expect(t, 2*leastDelay+planPause, "a") // the store is no longer expected there
	p.addressPlan.expect("b", p.now, p.now.Add(time.Second))
	p.addressPlan.expect("", p.now, p.now.Add(time.Second))
	p.addressPlan.expect("c", p.now, p.now) // the expectation has already ended
	p.expect(t, 2*leastDelay+planPause, "b")
	if p.find("c") != nil || p.find("") != nil {
		t.Error("an address was added")
	}
}
