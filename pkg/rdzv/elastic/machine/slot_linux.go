package machine

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

	"github.com/elasticrun/elasticrun/internal/userdir"
)

// Slots
//
// A slot is an abstract unix socket. It needs no folder that all users can write, and it disappears with its last
// descriptor. Any user can bind any name, so a name alone proves nothing. Therefore the holder listens, and a process
// that finds the name taken connects and asks the kernel which user listens (SO_PEERCRED). Only a process of the same
// user, or of root, holds the slot. If another user has the name, the slot is taken under another name, which begins
// with the slot's name and ends at random. Nobody can bind all of those.
//
// A process that has bound a name of a slot checks all other names of the slot, and releases its own if one of them is
// held. Of two processes that bind at the same time, at least one sees the other. So no two processes hold the slot,
// whatever other users bind or release meanwhile.

// heldSlot is a slot that this process holds.
type heldSlot struct {
	ln *net.UnixListener
	// acceptor closes the connections of processes that ask who holds the slot, so that the backlog never fills.
	acceptor *Acceptor
	once     sync.Once
}

// slotAttempts bounds the attempts at a slot that several processes want at the same time, so that each releases it.
const slotAttempts = 4

// TakeSlot takes a slot. Workers do not inherit it (SOCK_CLOEXEC): they could outlive their agent and keep its slot.
// The error is EADDRINUSE if the slot is taken.
func TakeSlot(name string) (io.Closer, error) {
	name = fmt.Sprintf("%s/%d", name, os.Geteuid())
	for try := 1; ; try++ {
		ln, err := bindSlot(name)
		if err != nil {
			return nil, fmt.Errorf("bind the unix socket @%s: %w", name, err)
		}
		if !heldElsewhere(name, ln.Addr().String()) {
			return &heldSlot{ln: ln, acceptor: Accept(ln, func(c net.Conn) { _ = c.Close() }, nil)}, nil
		}
		_ = ln.Close()
		if try == slotAttempts {
			return nil, fmt.Errorf("bind the unix socket @%s: %w", name, syscall.EADDRINUSE)
		}
		<-time.After(mathrand.N(20 * time.Millisecond)) // so that the competitors do not collide again
	}
}

// bindSlot binds a name of the slot: its own, or a random one if another user has bound that.
func bindSlot(name string) (*net.UnixListener, error) {
	for until := time.Now().Add(listenTimeout); ; <-time.After(5 * time.Millisecond) {
		ln, err := listenUnix("@" + name)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return ln, err
		}
		switch uid, askErr := slotHolder("@" + name); {
		case askErr == nil && userdir.Trusted(uid):
			return nil, err
		case askErr == nil, time.Now().After(until): // otherwise the holder has just ended, or is about to listen
			return listenUnix("@" + name + "/" + rand.Text()[:8])
		}
	}
}

// listenTimeout is how long a process that has bound a name may take to listen. After that it does not count as a
// holder.
const listenTimeout = 200 * time.Millisecond

func listenUnix(name string) (*net.UnixListener, error) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, SystemError(err)
	}
	return ln, nil
}

// Close releases the slot. It may be called more than once.
func (s *heldSlot) Close() (err error) {
	s.once.Do(func() { err = s.acceptor.Close() })
	return err
}

// SyscallConn returns the socket. The slot is held as long as any descriptor of it is open.
func (s *heldSlot) SyscallConn() (syscall.RawConn, error) { return s.ln.SyscallConn() }

// slotHolder returns the user that listens at a name. It does not block.
func slotHolder(name string) (int, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return -1, err
	}
	defer func() { _ = c.Close() }()
	return userdir.PeerUID(c)
}

// heldElsewhere reports whether a process of this user or of root holds the slot under a name other than own.
func heldElsewhere(slot, own string) bool {
	f, err := os.Open("/proc/net/unix")
	if err != nil { // without the list, two processes could hold the slot only if another user has bound its name
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
		if uid, err := slotHolder(name); err == nil && userdir.Trusted(uid) {
			return true
		}
	}
	return false
}
