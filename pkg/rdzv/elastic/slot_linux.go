package elastic

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Slots
//
// A slot is an abstract unix socket: it needs no folder that all users may write, and vanishes with its last descriptor. Anybody may bind any name, so
// a name alone proves nothing. Therefore the holder listens, and whoever finds the name taken connects and asks the kernel who listens (SO_PEERCRED).
// Only a process of the same user, or of root, holds the slot. If another user has the name, the slot is taken under a name of its own, that
// begins with the slot's and ends at random; nobody can have all of those.
//
// Whoever has bound a name of a slot looks at all others before it takes the slot for its own, and gives it up if one of them is held. Of two that
// bind at the same time at least one sees the other, so that no two hold the slot, whatever other users bind or give up meanwhile.

// heldSlot is a slot that this process holds.
type heldSlot struct {
	ln      *net.UnixListener
	closing chan struct{}
	once    sync.Once
	running sync.WaitGroup
}

// slotTries is how often a slot is asked for that several want at the same time, all of which have given it up.
const slotAttempts = 4

// takeSlot takes a slot. Workers do not inherit it (SOCK_CLOEXEC), as else they would hold the slot of an agent that is dead. The error is
// EADDRINUSE where the slot is taken.
func takeSlot(name string) (io.Closer, error) {
	name = fmt.Sprintf("%s/%d", name, os.Geteuid())
	for try := 1; ; try++ {
		ln, err := bindSlot(name)
		if err != nil {
			return nil, fmt.Errorf("bind the unix socket @%s: %w", name, err)
		}
		if !heldElsewhere(name, ln.Addr().String()) {
			return newHeldSlot(ln), nil
		}
		_ = ln.Close()
		if try == slotAttempts {
			return nil, fmt.Errorf("bind the unix socket @%s: %w", name, syscall.EADDRINUSE)
		}
		<-time.After(mathrand.N(20 * time.Millisecond)) // so that those who have met do not meet again
	}
}

// bindSlot binds a name of the slot: the first, or one at random where another user has that.
func bindSlot(name string) (*net.UnixListener, error) {
	for until := time.Now().Add(listenTimeout); ; <-time.After(5 * time.Millisecond) {
		ln, err := listenUnix("@" + name)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return ln, err
		}
		switch uid, askErr := slotHolder("@" + name); {
		case askErr == nil && trusted(uid):
			return nil, err
		case askErr == nil, time.Now().After(until): // else it has gone since, or is about to listen
			return listenUnix("@" + name + "/" + rand.Text()[:8])
		}
	}
}

// askBound is how long a process that has bound a name may take to listen; whoever does not is no holder.
const listenTimeout = 200 * time.Millisecond

// trusted tells whether a user's processes may hold slots that this process asks for.
func trusted(uid uint32) bool { return uid == uint32(os.Geteuid()) || uid == 0 }

func listenUnix(name string) (*net.UnixListener, error) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, systemError(err)
	}
	return ln, nil
}

// hold accepts whoever asks who holds the slot, so that the next one can ask too.
func newHeldSlot(ln *net.UnixListener) *heldSlot {
	s := &heldSlot{ln: ln, closing: make(chan struct{})}
	s.running.Go(func() {
		for {
			c, err := ln.Accept()
			switch {
			case err == nil:
				_ = c.Close()
				continue
			case errors.Is(err, net.ErrClosed):
				return
			}
			select { // no more files can be opened; that passes
			case <-time.After(100 * time.Millisecond):
			case <-s.closing:
				return
			}
		}
	})
	return s
}

// Close gives the slot up. It may be called again.
func (s *heldSlot) Close() error {
	var err error
	s.once.Do(func() {
		close(s.closing)
		err = s.ln.Close()
		s.running.Wait()
	})
	return err
}

// SyscallConn gives access to the socket: the slot is held as long as a descriptor of it is open.
func (s *heldSlot) SyscallConn() (syscall.RawConn, error) { return s.ln.SyscallConn() }

// slotHolder returns the user who listens at a name. It does not wait.
func slotHolder(name string) (uint32, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	return peerUID(c)
}

func peerUID(c *net.UnixConn) (uint32, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *syscall.Ucred
	if controlErr := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); controlErr != nil {
		return 0, controlErr
	}
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}

// heldElsewhere tells whether a process of this user or of root holds the slot under another name than own.
func heldElsewhere(slot, own string) bool {
	f, err := os.Open("/proc/net/unix")
	if err != nil { // then another user can keep this one out of the slot, no more
		return false
	}
	defer f.Close()
	asked := map[string]bool{own: true}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		_, name, ok := strings.Cut(lines.Text(), " @"+slot)
		if name = "@" + slot + name; !ok || asked[name] || name != "@"+slot && !strings.HasPrefix(name, "@"+slot+"/") {
			continue
		}
		asked[name] = true
		if uid, err := slotHolder(name); err == nil && trusted(uid) {
			return true
		}
	}
	return false
}
