package machine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// bindAsOtherUser binds an abstract name as another user. It listens with that backlog, or does not if backlog is
// negative.
func bindAsOtherUser(t *testing.T, name string, backlog int) (leave func()) {
	t.Helper()
	testenv.Root(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // only this thread changes its user
	defer runtime.UnlockOSThread()
	const keep, nobody = ^uintptr(0), 65534
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, nobody, keep); errno != 0 {
		t.Fatal(errno)
	}
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + name})
	if err == nil && backlog >= 0 {
		err = unix.Listen(fd, backlog)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, 0, keep); errno != 0 {
		t.Fatal(errno)
	}
	if err != nil {
		t.Fatal(err)
	}
	leave = sync.OnceFunc(func() { _ = unix.Close(fd) })
	t.Cleanup(leave)
	return leave
}

// Another user that has bound the name prevents nobody from taking the slot, however it holds the name. The slot has
// one holder all the same.
func TestSlotBoundByOtherUser(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		backlog int
		fill    int // number of connections that nobody accepts
	}{
		{"bound", -1, 0}, {"listening", 16, 0}, {"listening, and full", 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			slot := SlotName(uniqueRunID(t), "store", 0)
			bound := fmt.Sprintf("%s/%d", slot, os.Geteuid())
			leave := bindAsOtherUser(t, bound, tt.backlog)
			for range tt.fill {
				fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Close(fd)
				if err := unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + bound}); err != nil {
					t.Fatal(err)
				}
			}
			first, err := TakeSlot(slot)
			if err != nil {
				t.Fatalf("beside another user: %v", err)
			}
			wantTaken(t, slot, "a second time")
			leave()
			wantTaken(t, slot, "after the other user has left")
			if err := first.Close(); err != nil {
				t.Error(err)
			}
			again, err := TakeSlot(slot)
			if err != nil {
				t.Fatalf("a released slot: %v", err)
			}
			_ = again.Close()
		})
	}
}

// wantTaken checks that the slot is taken.
func wantTaken(t *testing.T, slot, when string) {
	t.Helper()
	if s, err := TakeSlot(slot); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("taken %s: %v", when, err)
		if err == nil {
			_ = s.Close()
		}
	}
}

// An agent has the same identity if another user has bound the names of many slots.
func TestIdentifyBesideOtherUser(t *testing.T) {
	run := uniqueRunID(t)
	for n := range 5 {
		bindAsOtherUser(t, fmt.Sprintf("%s/%d", SlotName(run, "-", n), os.Geteuid()), 16)
	}
	for want := range 2 {
		if id := identify(t, run, -1); slotOf(id) != fmt.Sprint(want) {
			t.Errorf("slot %s, want %d", slotOf(id), want)
		}
	}
}

// However many processes want a slot at once, while another user binds and releases the name, only one holds it.
func TestSlotHasOneHolder(t *testing.T) {
	testenv.Root(t)
	slot := SlotName(uniqueRunID(t), "store", 0)
	bound := fmt.Sprintf("%s/%d", slot, os.Geteuid())
	leave := bindAsOtherUser(t, bound, 16)
	var holders, taken atomic.Int32
	var contenders sync.WaitGroup
	for n := range 8 {
		contenders.Go(func() {
			for i := range 10 {
				if n == 0 && i == 5 {
					leave()
				}
				s, err := TakeSlot(slot)
				if errors.Is(err, syscall.EADDRINUSE) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if now := holders.Add(1); now != 1 {
					t.Errorf("%d holders", now)
				}
				taken.Add(1)
				runtime.Gosched()
				holders.Add(-1)
				_ = s.Close()
			}
		})
	}
	contenders.Wait()
	if taken.Load() == 0 {
		t.Error("nobody ever had the slot")
	}
	s, err := TakeSlot(slot)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}

// Names are never longer than the kernel allows.
func TestSlotNamesFit(t *testing.T) {
	s, err := TakeSlot(SlotName(strings.Repeat("r", maxRunIDInName), "store:65535", maxSlots))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n := len(SlotName(strings.Repeat("r", maxRunIDInName), "store:65535",
		maxSlots) + "/4294967294/12345678"); n > 107 {
		t.Errorf("a name has %d bytes", n)
	}
}
