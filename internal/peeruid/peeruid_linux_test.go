package peeruid

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

const foreigner = 65533

// ways are the ways to ask that the tests compare.
var ways = []way{{"sock_diag", sockDiag}, {"proc", (&procNet{open: openProcNet}).look}}

// setUsers changes the users of this thread alone.
func setUsers(t *testing.T, user, effective int) {
	t.Helper()
	_, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, uintptr(user), uintptr(effective), uintptr(effective))
	if errno != 0 {
		t.Error("setresuid:", errno)
	}
}

// client is the other end of a connection.
type client struct{ fd int }

// dial makes a socket and connects it. prepare is called between the two.
func dial(t *testing.T, to syscall.Sockaddr, prepare func(fd int)) *client {
	t.Helper()
	family := unix.AF_INET
	if _, ok := to.(*syscall.SockaddrInet6); ok {
		family = unix.AF_INET6
	}
	fd, err := syscall.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
		return nil
	}
	if prepare != nil {
		prepare(fd)
	}
	if err := syscall.Connect(fd, to); err != nil {
		t.Error("connect:", err)
	}
	return &client{fd}
}

func v4(ln net.Listener) syscall.Sockaddr {
	return &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: ln.Addr().(*net.TCPAddr).Port}
}

func v6(ln net.Listener, addr string) syscall.Sockaddr {
	return &syscall.SockaddrInet6{Addr: [16]byte(net.ParseIP(addr).To16()), Port: ln.Addr().(*net.TCPAddr).Port}
}

func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

func accept(t *testing.T, ln net.Listener) net.Conn {
	t.Helper()
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// server is where the clients of a test connect.
type server struct {
	t  *testing.T
	ln net.Listener
}

func TestOwner(t *testing.T) {
	asForeigner := func(s server) (c *client) {
		testenv.OnThread(func() {
			setUsers(s.t, foreigner, foreigner)
			c = dial(s.t, v4(s.ln), nil)
		})
		return c
	}
	for _, tt := range []struct {
		name   string
		listen string // the address to listen at
		root   bool   // the case needs root
		dial   func(server) *client
		want   int // the user
		err    error
	}{
		{
			name: "IPv4", listen: "127.0.0.1:0", want: os.Geteuid(),
			dial: func(s server) *client { return dial(s.t, v4(s.ln), nil) },
		},
		{
			name: "IPv6", listen: "[::1]:0", want: os.Geteuid(),
			dial: func(s server) *client { return dial(s.t, v6(s.ln, "::1"), nil) },
		},
		{
			name: "a server of both kinds, a client of IPv4", listen: ":0", want: os.Geteuid(),
			dial: func(s server) *client { return dial(s.t, v4(s.ln), nil) },
		},
		{
			name: "IPv4 in IPv6 form at both ends", listen: ":0", want: os.Geteuid(),
			dial: func(s server) *client { return dial(s.t, v6(s.ln, "::ffff:127.0.0.1"), nil) },
		},
		{
			name: "a client bound to the loopback interface", listen: "127.0.0.1:0", root: true, want: 0,
			dial: func(s server) *client {
				return dial(s.t, v4(s.ln), func(fd int) {
					if err := unix.BindToDevice(fd, "lo"); err != nil {
						s.t.Error(err)
					}
				})
			},
		},
		{
			name: "a client that sends no more", listen: "127.0.0.1:0", want: os.Geteuid(),
			dial: func(s server) *client {
				c := dial(s.t, v4(s.ln), nil)
				_ = syscall.Shutdown(c.fd, syscall.SHUT_WR)
				return c
			},
		},
		{name: "another user", listen: "127.0.0.1:0", root: true, dial: asForeigner, want: foreigner},
		{
			name: "a program with setuid root", listen: "127.0.0.1:0", root: true, want: 0,
			dial: func(s server) (c *client) {
				testenv.OnThread(func() {
					setUsers(s.t, foreigner, 0)
					c = dial(s.t, v4(s.ln), nil)
				})
				return c
			},
		},
		{
			name: "a program of root that becomes another user", listen: "127.0.0.1:0", root: true, want: 0,
			dial: func(s server) (c *client) {
				testenv.OnThread(func() { c = dial(s.t, v4(s.ln), func(int) { setUsers(s.t, foreigner, foreigner) }) })
				return c
			},
		},
		{
			name: "another user who has closed the connection", listen: "127.0.0.1:0", root: true, err: ErrEnded,
			dial: func(s server) *client {
				_ = syscall.Close(asForeigner(s).fd) // a socket without a process, in FIN_WAIT2
				return nil
			},
		},
		{
			name: "another user who has reset the connection", listen: "127.0.0.1:0", root: true, err: ErrEnded,
			dial: func(s server) *client {
				c := asForeigner(s)
				_ = syscall.SetsockoptLinger(c.fd, syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
				_ = syscall.Close(c.fd)
				return nil
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.root {
				testenv.Root(t)
			}
			ln := listen(t, tt.listen)
			c := tt.dial(server{t, ln})
			if c != nil {
				defer syscall.Close(c.fd)
			}
			conn := accept(t, ln)
			for _, w := range ways {
				user, err := (&Finder{look: w.look, unmapped: -1}).Owner(conn)
				if !errors.Is(err, tt.err) || tt.err == nil && user != tt.want {
					t.Errorf("%s: user %d, %v; want %d, %v", w.name, user, err, tt.want, tt.err)
				}
			}
		})
	}
}

// A client process of another user is found.
func TestOwnerOfAProcess(t *testing.T) {
	testenv.Root(t)
	ln := listen(t, "127.0.0.1:0")
	script := fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d; read -u 3", ln.Addr().(*net.TCPAddr).Port)
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: foreigner, Gid: foreigner}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn := accept(t, ln)
	f, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if user, err := f.Owner(conn); err != nil || user != foreigner {
		t.Errorf("user %d, %v; want %d", user, err, foreigner)
	}
	_ = conn.Close()
	_ = cmd.Wait()
}

// A peer in another network namespace has no user here, and neither does a peer whose user this user namespace does not
// have.
func TestOwnerElsewhere(t *testing.T) {
	testenv.Root(t)
	ln := listen(t, "127.0.0.1:0")
	c := dial(t, v4(ln), nil)
	defer syscall.Close(c.fd)
	conn := accept(t, ln)
	testenv.OnThread(func() {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		for _, w := range ways {
			if user, err := (&Finder{look: w.look, unmapped: -1}).Owner(conn); !errors.Is(err, ErrElsewhere) {
				t.Errorf("%s, in another network: user %d, %v", w.name, user, err)
			}
		}
	})
	for _, w := range ways {
		if user, err := (&Finder{look: w.look, unmapped: os.Geteuid()}).Owner(conn); !errors.Is(err, ErrUnmapped) {
			t.Errorf("%s, in another user namespace: user %d, %v", w.name, user, err)
		}
	}
}

// A socket that has the peer's place, but not its connection, is not the peer.
func TestOwnerRefusesAnswers(t *testing.T) {
	ln := listen(t, "127.0.0.1:0")
	c := dial(t, v4(ln), nil)
	defer syscall.Close(c.fd)
	conn := accept(t, ln)
	for _, tt := range []struct {
		name  string
		found socket
	}{
		{"no process has it", socket{state: unix.BPF_TCP_ESTABLISHED}},
		{"it only begins to connect", socket{state: unix.BPF_TCP_SYN_SENT, inode: 1}},
		{"it waits for late segments", socket{state: unix.BPF_TCP_TIME_WAIT, inode: 1}},
		{"it listens", socket{state: unix.BPF_TCP_LISTEN, inode: 1}},
	} {
		f := &Finder{look: func(tuple) (socket, error) { return tt.found, nil }, unmapped: -1}
		if user, err := f.Owner(conn); !errors.Is(err, ErrEnded) {
			t.Errorf("%s: user %d, %v", tt.name, user, err)
		}
	}
	broken := &Finder{look: func(tuple) (socket, error) { return socket{}, syscall.EMFILE }}
	if _, err := broken.Owner(conn); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("out of files: %v", err)
	}
}

// TestListenerIsNotThePeer asks for a connection that does not exist, at a port where a socket listens. The kernel
// answers with the listening socket.
func TestListenerIsNotThePeer(t *testing.T) {
	ln := listen(t, "127.0.0.1:0")
	at := ln.Addr().(*net.TCPAddr).AddrPort()
	for _, w := range ways {
		if found, err := w.look(tuple{local: at, remote: at}); !errors.Is(err, errNoSocket) {
			t.Errorf("%s: %+v, %v", w.name, found, err)
		}
	}
}

// TestNewWithoutLoopback makes a Finder in a network namespace whose loopback interface is down. The Finder finds no
// user there until the interface is up.
func TestNewWithoutLoopback(t *testing.T) {
	testenv.Root(t)
	ln := listen(t, "127.0.0.1:0")
	c := dial(t, v4(ln), nil)
	defer syscall.Close(c.fd)
	conn := accept(t, ln)
	var f *Finder
	testenv.OnThread(func() {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		var err error
		if f, err = New(); err != nil {
			t.Error(err)
			return
		}
		if _, err := f.Owner(conn); !errors.Is(err, errNoLoopback) {
			t.Errorf("while it is down: %v", err)
		}
	})
	if t.Failed() {
		return
	}
	if user, err := f.Owner(conn); err != nil || user != os.Geteuid() {
		t.Errorf("once it is up: user %d, %v", user, err)
	}
}

func TestNewFinder(t *testing.T) {
	denied := way{"denied", func(tuple) (socket, error) { return socket{}, syscall.EACCES }}
	blind := way{"blind", func(tuple) (socket, error) { return socket{}, errNoSocket }}
	wrong := way{"wrong", func(tuple) (socket, error) {
		return socket{state: unix.BPF_TCP_ESTABLISHED, user: uint32(os.Geteuid() + 1), inode: 1}, nil
	}}
	if _, err := newFinder(-1, denied, blind, wrong, ways[1]); err != nil {
		t.Errorf("one way works: %v", err)
	}
	_, err := newFinder(-1, denied, blind, wrong)
	want := fmt.Sprintf("denied: permission is denied; blind: the kernel does not find this process's own socket; "+
		"wrong: the kernel shows user %d for a socket of user %d", os.Geteuid()+1, os.Geteuid())
	if err == nil || err.Error() != want {
		t.Errorf("no way works: %v, want %s", err, want)
	}
	if _, err = newFinder(os.Geteuid(), ways...); err == nil || !strings.Contains(err.Error(), "own user does not exist") {
		t.Errorf("in a user namespace without users: %v", err)
	}
}

func TestUnmappedUser(t *testing.T) {
	for _, tt := range []struct {
		name, users, overflow string
		ownNetwork            bool
		want                  int
	}{
		{"the first namespace", "0 0 4294967295", "65534\n", true, -1},
		{"a container of root alone", "         0       1000          1\n", "65534\n", true, 65534},
		{"a container with nobody", "0 1000 1\n1 100000 65536\n", "65534\n", true, -1},
		{"a container with nobody in the host's network", "0 1000 1\n1 100000 65536\n", "65534\n", false, 65534},
		{"the first namespace, whose network is another's", "0 0 4294967295", "65534\n", false, -1},
		{"no user at all", "", "65534\n", true, 65534},
		{"another number", "0 1000 1\n", "4000\n", true, 4000},
		{"an unknown number", "0 1000 1\n", "", true, 65534},
	} {
		got := unmappedUser(func(name string) ([]byte, error) {
			text := tt.users
			if strings.Contains(name, "overflow") {
				text = tt.overflow
			}
			return []byte(text), nil
		}, func() bool { return tt.ownNetwork })
		if got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestOwnsNetwork asks in the network of the machine, and in one that a child's user namespace has.
func TestOwnsNetwork(t *testing.T) {
	if os.Getenv("OWNS_NETWORK") != "" {
		fmt.Println("owns:", ownsNetwork())
		return
	}
	testenv.Root(t)
	for flags, want := range map[uintptr]string{
		0: "owns: true", syscall.CLONE_NEWUSER: "owns: false", syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET: "owns: true",
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOwnsNetwork$")
		cmd.Env = append(os.Environ(), "OWNS_NETWORK=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("namespaces %x: %v, want %q:\n%s", flags, err, want, out)
		}
	}
}

func BenchmarkOwner(b *testing.B) {
	pair, err := connectSelf()
	if err != nil {
		b.Fatal(err)
	}
	defer pair.close()
	for _, w := range ways {
		f := &Finder{look: w.look, unmapped: -1}
		b.Run(w.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := f.Owner(pair.accepted); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		if _, err := New(); err != nil {
			b.Fatal(err)
		}
	}
}
