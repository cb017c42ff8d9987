package peeruid

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/plainerr"
)

// Finder finds the users of peers. Use [New].
type Finder struct {
	look lookup
	// unmapped is the number that the kernel shows for a user that does not exist in this user namespace, or -1 if no peer
	// can have such a user.
	unmapped int
}

// tuple names a TCP socket by its addresses, which are not IPv4 addresses in IPv6 form, and ports.
type tuple struct{ local, remote netip.AddrPort }

// socket is what the kernel says about one socket.
type socket struct {
	state byte
	user  uint32
	inode uint64 // 0 if no process has the socket
}

// connected reports whether a process has the socket and can have used it for a connection that we have not ended.
func (s socket) connected() bool {
	switch s.state {
	case unix.BPF_TCP_ESTABLISHED, unix.BPF_TCP_FIN_WAIT1, unix.BPF_TCP_FIN_WAIT2:
		return s.inode != 0
	}
	return false
}

// lookup finds a socket. Its error is errNoSocket if the kernel has none.
type lookup func(tuple) (socket, error)

var errNoSocket = errors.New("no such socket")

// New returns a Finder. It first asks the kernel about a connection of this process with itself, because Owner cannot
// distinguish a way that does not work from a peer that is gone. The error says why each way failed.
//
// Without a loopback interface that is up, as after unshare --net, no process of this machine can connect, so nothing
// can be tested. Then the Finder tests the ways at each call of Owner.
func New() (*Finder, error) {
	unmapped := unmappedUser(os.ReadFile, ownsNetwork)
	test := func() (*Finder, error) {
		return newFinder(unmapped, way{"sock_diag", sockDiag}, way{"/proc/net/tcp", (&procNet{open: openProcNet}).look})
	}
	f, err := test()
	if !errors.Is(err, errNoLoopback) {
		return f, err
	}
	return &Finder{unmapped: unmapped, look: func(t tuple) (socket, error) {
		tested, err := test()
		if err != nil {
			return socket{}, err
		}
		return tested.look(t)
	}}, nil
}

// errNoLoopback means that this network namespace has no loopback interface that is up.
var errNoLoopback = errors.New("the loopback interface is down: ip link set lo up")

// way is one way to ask the kernel.
type way struct {
	name string
	look lookup
}

// newFinder returns a Finder that uses the first of the ways that passes the test.
func newFinder(unmapped int, ways ...way) (*Finder, error) {
	pair, err := connectSelf()
	if err != nil {
		return nil, fmt.Errorf("connect with itself: %w", err)
	}
	defer pair.close()
	var failed []string
	for _, w := range ways {
		f := &Finder{look: w.look, unmapped: unmapped}
		user, err := f.Owner(pair.accepted)
		if err == nil && user != os.Geteuid() {
			err = fmt.Errorf("the kernel shows user %d for a socket of user %d", user, os.Geteuid())
		}
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, ErrUnmapped):
			return nil, errors.New("this process's own user does not exist in its user namespace, or has the number of " +
				"users that do not")
		case errors.Is(err, ErrElsewhere):
			err = errors.New("the kernel does not find this process's own socket")
		}
		failed = append(failed, w.name+": "+plainerr.Text(err))
	}
	return nil, errors.New(strings.Join(failed, "; "))
}

// Owner returns the user who made the socket at the other end of c, a TCP connection with a socket of its own. Errors
// other than ErrEnded, ErrElsewhere and ErrUnmapped are those of the system, such as EMFILE. Owner does not wait for
// the peer, but reading /proc/net/tcp takes time: call it from several goroutines, so that one reading answers all of
// them.
func (f *Finder) Owner(c net.Conn) (user int, err error) {
	local, ok1 := c.LocalAddr().(*net.TCPAddr)
	remote, ok2 := c.RemoteAddr().(*net.TCPAddr)
	own, ok3 := c.(syscall.Conn)
	if !ok1 || !ok2 || !ok3 {
		return -1, fmt.Errorf("find the user of a %s connection: %w", c.LocalAddr().Network(), errors.ErrUnsupported)
	}
	found, err := f.look(tuple{local: unmap(remote), remote: unmap(local)})
	if err != nil && !errors.Is(err, errNoSocket) {
		return -1, err
	}
	state, stateErr := stateOf(own)
	switch {
	case stateErr != nil:
		return -1, stateErr
	case state != unix.BPF_TCP_ESTABLISHED && state != unix.BPF_TCP_CLOSE_WAIT:
		return -1, ErrEnded
	case err != nil && state == unix.BPF_TCP_ESTABLISHED:
		return -1, ErrElsewhere
	case err != nil || !found.connected():
		return -1, ErrEnded
	case int(found.user) == f.unmapped:
		return -1, ErrUnmapped
	}
	return int(found.user), nil
}

func unmap(a *net.TCPAddr) netip.AddrPort {
	at := a.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// stateOf returns the TCP state of this process's own socket.
func stateOf(own syscall.Conn) (state byte, err error) {
	raw, err := own.SyscallConn()
	if err != nil {
		return 0, err
	}
	var info *unix.TCPInfo
	if controlErr := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}); controlErr != nil {
		return 0, controlErr
	}
	if err != nil {
		return 0, os.NewSyscallError("getsockopt", err)
	}
	return info.State, nil
}

// pair is a connection of this process with itself.
type pair struct {
	accepted net.Conn
	dialed   *net.TCPConn
}

// connectSelf connects over the loopback interface. Another process cannot take the place of an end: connectSelf
// accepts only the connection from the port that it dialed from.
func connectSelf() (pair, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		ln, err = net.Listen("tcp", "[::1]:0")
	}
	switch {
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return pair{}, errNoLoopback
	case err != nil:
		return pair{}, err
	}
	defer ln.Close()
	dialed, err := net.DialTCP("tcp", nil, ln.Addr().(*net.TCPAddr))
	switch {
	case errors.Is(err, unix.ENETUNREACH):
		return pair{}, errNoLoopback
	case err != nil:
		return pair{}, err
	}
	for {
		accepted, err := ln.Accept()
		switch {
		case err != nil:
			_ = dialed.Close()
			return pair{}, err
		case accepted.RemoteAddr().String() == dialed.LocalAddr().String():
			return pair{accepted, dialed}, nil
		}
		_ = accepted.Close()
	}
}

// close closes both ends and leaves no socket, not even one in TIME_WAIT.
func (p pair) close() {
	_ = p.dialed.SetLinger(0)
	_ = p.dialed.Close()
	_ = p.accepted.Close()
}
