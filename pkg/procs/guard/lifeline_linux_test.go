package guard

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/boottime"
)

// What passed fires once, and is not undone by a call that comes before the answer; after it
// one is heard.
func TestDeadlineFiresOnce(t *testing.T) {
	timer, err := newGuardTimer()
	if err != nil {
		t.Fatal(err)
	}
	defer timer.close()
	fd, err := syscall.Dup(timer.fd)
	if err != nil {
		t.Fatal(err)
	}
	var d deadline
	d.open(fd)
	defer d.close()
	fires := func(within time.Duration) bool {
		select {
		case <-timer.expired:
			return true
		case <-time.After(within):
			return false
		}
	}
	set := func(in time.Duration) {
		if in == 0 {
			d.set(0)
			return
		}
		d.set(boottime.Now() + in)
	}
	for _, in := range []time.Duration{20 * time.Millisecond, -time.Second, time.Nanosecond, 3 * time.Millisecond} {
		set(in)
		if !fires(long) {
			t.Fatalf("%v: did not fire", in)
		}
		for _, late := range []time.Duration{0, time.Minute, -1} {
			set(late)
			if after, passed := timer.passed(); !passed || after > max(in, 0) || after < in-long || fires(short/5) {
				t.Errorf("%v, then %v: passed %v after %v", in, late, passed, after)
			}
		}
		set(time.Minute)
		d.answered()
		if _, passed := timer.passed(); !passed {
			t.Errorf("%v: what was not heard counts after the answer", in)
		}
		for _, next := range []time.Duration{0, time.Minute, 0} {
			set(next)
			if _, passed := timer.passed(); passed || fires(short/5) {
				t.Errorf("%v, then %v after the answer: passed %v", in, next, passed)
			}
		}
	}
}

// All that a dead agent had sent counts, though somebody else has its end of the lifeline open.
func TestLifelineIsReadToTheEnd(t *testing.T) {
	for range 20 {
		link, theirs, err := newGuardLink()
		if err != nil {
			t.Fatal(err)
		}
		l := &Lifeline{link: os.NewFile(uintptr(theirs), "lifeline")}
		for i := range 100 {
			if err := l.SetExitNotice(fmt.Append(nil, i)); err != nil {
				t.Fatal(err)
			}
		}
		l.AnnounceExit(0)
		if !link.finish() || string(link.notice) != "99" {
			t.Errorf("announced %v, notice %q", link.ending, link.notice)
		}
		link.close()
		_ = l.link.Close()
		if err := l.SetExitNotice(nil); err == nil {
			t.Error("a closed lifeline took a notice")
		}
	}
}

func TestExitNoticeTooLong(t *testing.T) {
	link, theirs, err := newGuardLink()
	if err != nil {
		t.Fatal(err)
	}
	defer link.close()
	l := &Lifeline{link: os.NewFile(uintptr(theirs), "lifeline")}
	defer l.link.Close()
	if err := l.SetExitNotice(make([]byte, maxExitNotice)); err != nil {
		t.Errorf("the longest: %v", err)
	}
	if err := l.SetExitNotice(make([]byte, maxExitNotice+1)); err == nil {
		t.Error("a longer one was taken")
	}
	if link.finish(); len(link.notice) != maxExitNotice {
		t.Errorf("%d bytes arrived", len(link.notice))
	}
}

// A guard that reads nothing does not stop the agent.
func TestExitNoticeDoesNotBlock(t *testing.T) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Fatal(err)
	}
	guard, l := os.NewFile(uintptr(fds[0]), "guard"), &Lifeline{link: os.NewFile(uintptr(fds[1]), "lifeline")}
	defer func() { _, _ = guard.Close(), l.link.Close() }()
	for range 100_000 {
		if err := l.SetExitNotice(nil); err != nil {
			if !errors.Is(err, syscall.EAGAIN) {
				t.Error(err)
			}
			return
		}
	}
	t.Error("there is room for everything")
}

// Without a guard nothing happens.
func TestNoLifeline(t *testing.T) {
	var none *Lifeline
	none.SetDeadline(time.Nanosecond)
	none.AnnounceExit(0)
	if err := none.SetExitNotice(nil); err != nil {
		t.Error(err)
	}
	if none.Broken() != nil {
		t.Error("a lifeline that is not there can tell something")
	}
	none.Close()
}
