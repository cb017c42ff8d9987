package guard

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/boottime"
)

// A deadline that passed fires once. A call before the acknowledgment does not undo it; the first call after it counts.
func TestDeadlineFiresOnce(t *testing.T) {
	t.Parallel()
	timer, err := newGuardTimer()
	if err != nil {
		t.Fatal(err)
	}
	defer timer.close()
	// Workers of parallel tests must not inherit fd.
	fd, err := unix.FcntlInt(uintptr(timer.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var d watchdog
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
		d.acknowledged()
		if _, passed := timer.passed(); !passed {
			t.Errorf("%v: a call before the acknowledgment counts after it", in)
		}
		for _, next := range []time.Duration{0, time.Minute, 0} {
			set(next)
			if _, passed := timer.passed(); passed || fires(short/5) {
				t.Errorf("%v, then %v after the answer: passed %v", in, next, passed)
			}
		}
	}
}

// Everything that a dead agent had sent counts, even if another process has its end of the lifeline open.
func TestLifelineIsReadToTheEnd(t *testing.T) {
	t.Parallel()
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
			t.Errorf("announced %v, notice %q", link.exiting, link.notice)
		}
		link.close()
		_ = l.link.Close()
		if err := l.SetExitNotice(nil); err == nil {
			t.Error("a closed lifeline accepted a notice")
		}
	}
}

func TestExitNoticeTooLong(t *testing.T) {
	t.Parallel()
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
		t.Error("a longer notice was accepted")
	}
	if link.finish(); len(link.notice) != maxExitNotice {
		t.Errorf("%d bytes arrived", len(link.notice))
	}
}

// A guard that reads nothing does not block the agent.
func TestExitNoticeDoesNotBlock(t *testing.T) {
	t.Parallel()
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
	t.Error("the socket never fills up")
}

// The methods of a nil lifeline do nothing.
func TestNoLifeline(t *testing.T) {
	t.Parallel()
	var none *Lifeline
	none.SetDeadline(time.Nanosecond)
	none.AnnounceExit(0)
	if err := none.SetExitNotice(nil); err != nil {
		t.Error(err)
	}
	if none.Broken() != nil {
		t.Error("a nil lifeline can break")
	}
	none.Close()
}
