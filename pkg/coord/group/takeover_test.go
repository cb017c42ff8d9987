package group

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

// takeOver asks the member at addr to take over, as the guard of a killed process does.
func (n *network) takeOver(addr string, stored []byte) error {
	opts := n.opts.Dial
	opts.Addr = addr
	opts.Conn = func(ctx context.Context) (net.Conn, error) { return n.dial(ctx, "guard", addr) }
	ctx, cancel := context.WithTimeout(n.t.Context(), 5*time.Second)
	defer cancel()
	return TakeOver(ctx, opts, stored, func() error { return nil })
}

// foundTwo starts a group with one voter, member0:1, and a learner, member1:1. It waits until the learner has every
// entry.
func (n *network) foundTwo() {
	n.t.Helper()
	n.begin("member0:1", "member1:1")
	n.awaitLearner("member0:1", "member1:1")
}

// awaitLearner waits until the member at learner is a learner with every entry of the member at leader.
func (n *network) awaitLearner(leader, learner string) {
	n.t.Helper()
	n.await("a learner that has everything", func() bool {
		var applied [2]uint64
		var isLearner bool
		for i, addr := range []string{leader, learner} {
			m := n.members[addr]
			inLoop(m, func() {
				if m.replica != nil {
					s := m.replica.Status()
					applied[i], isLearner = s.Applied, len(s.Learners) > 0
				}
			})
		}
		return isLearner && applied[0] == applied[1]
	})
}

// TestTakeOver kills the only voter again and again. Each time the learner takes over with every acknowledged entry.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.foundTwo()
		c := n.client("client", time.Minute, "member0:1", "member1:1")
		put(t, c, "first", "v")
		names := []string{"member0:1", "member1:1"}
		for i := range 6 {
			leader, heir := names[i%2], names[(i+1)%2]
			n.awaitLearner(leader, heir)
			put(t, c, "key", leader)
			n.awaitLearner(leader, heir)
			stored := n.kill(leader)
			if err := n.takeOver(heir, stored); err != nil {
				t.Fatal(err)
			}
			if s := n.members[heir].Status(); !s.Leading || len(s.Voters) != 1 || s.Voters[0] != heir {
				t.Errorf("after the takeover: %+v", s)
			}
			holds(t, c, map[string]string{"first": "v", "key": leader})
			if err := n.takeOver(heir, stored); !errors.Is(err, ErrRefused) {
				t.Errorf("a second request: %v", err)
			}
			n.start(leader)
			n.members[heir].SetCandidates([]Candidate{{names[i%2], string(rune('a' + i))}, {heir, ""}})
		}
	})
}

// TestTakeOverRefused asks a learner that must refuse. Then the right request succeeds.
func TestTakeOverRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		may := false
		n := newNetwork(t, Options{MayTakeOver: func(string) bool { return may }, TakeOverTime: 5 * time.Second})
		n.foundTwo()
		c := n.client("client", time.Minute, "member0:1", "member1:1")
		put(t, c, "key", "v")
		n.awaitLearner("member0:1", "member1:1")
		stored := n.kill("member0:1")
		if err := n.takeOver("member1:1", stored); !errors.Is(err, ErrRefused) {
			t.Errorf("a member that may not has taken over: %v", err)
		}
		may = true
		d := decoder{rest: stored, ok: true}
		instance, a := d.acknowledged()
		if !d.done() {
			t.Fatalf("%q is malformed", stored)
		}
		for name, request := range map[string][]byte{
			"empty":         nil,
			"malformed":     append(stored, 1),
			"another group": encodeAcknowledged("other", a),
			"more entries":  encodeAcknowledged(instance, replica.Acknowledged{Leader: a.Leader, Term: a.Term, Index: a.Index + 1}),
			"fewer entries": encodeAcknowledged(instance, replica.Acknowledged{Leader: a.Leader, Term: a.Term, Index: a.Index - 1}),
			"another term":  encodeAcknowledged(instance, replica.Acknowledged{Leader: a.Leader, Term: a.Term + 1, Index: a.Index}),
			"no voter":      encodeAcknowledged(instance, replica.Acknowledged{Leader: a.Leader + 1, Term: a.Term, Index: a.Index}),
		} {
			if err := n.takeOver("member1:1", request); !errors.Is(err, ErrRefused) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := n.takeOver("member1:1", stored); err != nil {
			t.Error(err)
		}
		holds(t, c, map[string]string{"key": "v"})
	})
}

// TestTakeOverLate asks a learner that has not heard from its leader for too long.
func TestTakeOverLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{TakeOverTime: 5 * time.Second})
		n.foundTwo()
		pass(time.Minute)
		stored := n.kill("member0:1")
		pass(5500 * time.Millisecond)
		if err := n.takeOver("member1:1", stored); !errors.Is(err, ErrRefused) {
			t.Errorf("too late: %v", err)
		}
	})
}

// TestTakeOverBefore checks TakeOver when before forbids the request, and when nobody is reached.
func TestTakeOverBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.foundTwo()
		stored := n.kill("member0:1")
		opts := n.opts.Dial
		opts.Addr = "member1:1"
		opts.Conn = func(ctx context.Context) (net.Conn, error) { return n.dial(ctx, "guard", "member1:1") }
		failed := errors.New("no room")
		if err := TakeOver(t.Context(), opts, stored, func() error { return failed }); !errors.Is(err, failed) {
			t.Errorf("TakeOver returns %v", err)
		}
		if n.members["member1:1"].Status().Leading {
			t.Error("the member was asked")
		}
		n.kill("member1:1")
		asked := false
		err := TakeOver(t.Context(), opts, stored, func() error { asked = true; return nil })
		if !errors.As(err, new(*coord.DialError)) || asked {
			t.Errorf("nobody is there: %v, asked: %v", err, asked)
		}
	})
}

// TestNextProcessIsHeir restarts a learner at its address, sometimes after its leader has noticed its loss. Soon the
// new process can take over.
func TestNextProcessIsHeir(t *testing.T) {
	for _, early := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t, Options{})
			n.start("member0:1")
			first := n.members["member0:1"]
			next := func(process string) { first.SetCandidates([]Candidate{{"member0:1", "a"}, {"member1:1", process}}) }
			if err := first.Found(); err != nil {
				t.Fatal(err)
			}
			for i := range 5 {
				n.start("member1:1")
				next(string(rune('b' + i)))
				began := time.Now()
				n.await("an heir", func() bool { return len(first.Status().Heirs) == 1 })
				if took := time.Since(began); took > 1500*time.Millisecond {
					t.Errorf("the next process can take over after %v", took)
				}
				pass(time.Second)
				n.kill("member1:1")
				if early {
					next(string(rune('c' + i)))
				}
				pass(300 * time.Millisecond)
			}
		})
	}
}

// TestStored checks that no data is stored while others vote too, and after a member has left its group.
func TestStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.found("member0:1", "member1:1", "member2:1")
		leader := n.leader()
		if stored := n.storedBy(leader); stored != nil {
			t.Errorf("with three voters %q is stored", stored)
		}
		for _, addr := range []string{"member0:1", "member1:1", "member2:1"} {
			if addr != leader {
				n.kill(addr)
			}
		}
		if stored := n.storedBy(leader); stored != nil {
			t.Errorf("with one of three voters %q is stored", stored)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.foundTwo()
		if n.storedBy("member0:1") == nil || n.storedBy("member1:1") != nil {
			t.Errorf("stored: %q and %q", n.storedBy("member0:1"), n.storedBy("member1:1"))
		}
		if err := n.members["member0:1"].Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.await("something stored by the next leader", func() bool { return n.storedBy("member1:1") != nil })
		if stored := n.storedBy("member0:1"); stored != nil {
			t.Errorf("the member that has left stores %q", stored)
		}
	})
}
