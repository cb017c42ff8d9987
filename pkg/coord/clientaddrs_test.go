package coord

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// memberPort is the port of a member of a store's group on this machine: a listener whose present handler handles each
// new connection.
type memberPort struct {
	addr string
	stop func() // closes the listener

	mu     sync.Mutex
	handle func(net.Conn) // owns the connection
	conns  []net.Conn
}

// startPort listens until the test ends. The caller must call set.
func startPort(t *testing.T) *memberPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &memberPort{addr: l.Addr().String()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.conns = append(p.conns, nc)
			p.handle(nc)
			p.mu.Unlock()
		}
	}()
	p.stop = sync.OnceFunc(func() {
		l.Close()
		<-done
		p.breakAll()
	})
	t.Cleanup(p.stop)
	return p
}

// set makes handle handle new connections, and breaks the others.
func (p *memberPort) set(handle func(net.Conn)) {
	p.mu.Lock()
	p.handle = handle
	p.mu.Unlock()
	p.breakAll()
}

func (p *memberPort) breakAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, nc := range p.conns {
		nc.Close()
	}
	p.conns = nil
}

// silence keeps connections open and never answers.
func silence(net.Conn) {}

// TestGroupOverTCP moves a store among three ports. The client resumes its session although the other members refuse,
// are silent, or are gone.
func TestGroupOverTCP(t *testing.T) {
	s := NewServer(memberOptions())
	t.Cleanup(func() { _ = s.Close() })
	a, b, c := startPort(t), startPort(t), startPort(t)
	member := func(named string) func(net.Conn) {
		opts := memberOptions()
		opts.Elsewhere = func() (string, bool) { return named, true }
		m := NewServer(opts)
		t.Cleanup(func() { _ = m.Close() })
		return m.ServeConn
	}
	a.set(s.ServeConn)
	b.set(member(a.addr))
	c.set(member(""))
	client := dial(t, memberDial(b.addr))
	client.SetAddrs([]string{a.addr, b.addr, c.addr})
	if got, want := client.Addrs(), []string{a.addr, b.addr, c.addr}; !slices.Equal(got, want) {
		t.Errorf("the client knows %v, want %v", got, want)
	}
	session, instance := client.Session(), client.InstanceID()
	seen := watch(t, client, "k")
	next(t, seen, "the first batch")
	for _, step := range []struct {
		name string
		do   func()
		at   *memberPort
	}{
		{"a interrupted connection", a.breakAll, a},
		{"b takes over, and a says so", func() { b.set(s.ServeConn); a.set(member(b.addr)) }, b},
		{"c takes over, b is silent", func() { c.set(s.ServeConn); b.set(silence) }, c},
		{"a takes over, b is gone, c does not know", func() { a.set(s.ServeConn); b.stop(); c.set(member("")) }, a},
	} {
		began := time.Now()
		step.do()
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		if err := client.KeepAlive(ctx); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		cancel()
		t.Logf("%s: %v", step.name, time.Since(began))
		if got := client.Addrs()[0]; got != step.at.addr {
			t.Errorf("%s: the client is at %s, want %s", step.name, got, step.at.addr)
		}
		if b := next(t, seen, "the state"); !b.Resync {
			t.Errorf("%s: batch %+v", step.name, b)
		}
	}
	if client.Session() != session || client.InstanceID() != instance || s.Sessions() != 1 {
		t.Errorf("session %s at %s, %d sessions", client.Session(), client.InstanceID(), s.Sessions())
	}
}

// TestNamesOfMembers uses host names as the group's addresses. One of the names is unknown.
func TestNamesOfMembers(t *testing.T) {
	s := NewServer(memberOptions())
	t.Cleanup(func() { _ = s.Close() })
	a, b := startPort(t), startPort(t)
	a.set(s.ServeConn)
	b.set(s.ServeConn)
	client := dial(t, memberDial(a.addr))
	_, port, err := net.SplitHostPort(b.addr)
	if err != nil {
		t.Fatal(err)
	}
	name := net.JoinHostPort("localhost", port)
	client.SetAddrs([]string{"member.invalid:29400", name})
	a.stop()
	if err := client.KeepAlive(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := client.Addrs()[0]; got != name {
		t.Errorf("the client is at %s, want %s", got, name)
	}
}

// TestResumeIsNotRedirected lets a peer without the secret take the address of a store and name another address. The
// client neither goes there nor ends.
func TestResumeIsNotRedirected(t *testing.T) {
	trap, named := startServer(t, memberOptions())
	s := NewServer(memberOptions())
	t.Cleanup(func() { _ = s.Close() })
	for name, answer := range redirectsWithoutProof(named) {
		t.Run(name, func(t *testing.T) {
			port := startPort(t)
			port.set(s.ServeConn)
			client := dial(t, memberDial(port.addr))
			answered := make(chan struct{}, 100)
			var running sync.WaitGroup
			port.set(func(nc net.Conn) {
				running.Go(func() {
					answer(nc)
					nc.Close()
					answered <- struct{}{}
				})
			})
			for range 3 {
				next(t, answered, "another attempt")
			}
			port.set(s.ServeConn)
			running.Wait()
			if err := client.KeepAlive(t.Context()); err != nil {
				t.Error(err)
			}
			if n := trap.Stats().Accepted; n != 0 {
				t.Errorf("the named address got %d connections", n)
			}
		})
	}
}

// redirectsWithoutProof returns possible answers of a server that wants to send clients to another address without
// knowing the secret.
func redirectsWithoutProof(named string) map[string]func(net.Conn) {
	why := elsewhereRefusal(named)
	frame := appendRefusal(nil, why.reason, why.message)
	inTLS := func(begin func(*conn)) func(net.Conn) {
		return func(nc net.Conn) {
			if c := secureStore(nc); c != nil {
				_, _, _ = readFrame(c.nc, maxHandshake, make([]byte, frameHeader))
				begin(c)
				c.nc.Write(frame)
				io.Copy(io.Discard, c.nc)
			}
		}
	}
	return map[string]func(net.Conn){
		"in the clear": func(nc net.Conn) {
			nc.Read(make([]byte, 99))
			nc.Write(append([]byte(magic+"\x00\x09"), frame...))
		},
		"in the clear, the same version": func(nc net.Conn) {
			nc.Read(make([]byte, 99))
			nc.Write(append(appendPreamble(nil), frame...))
		},
		"instead of the challenge": inTLS(func(*conn) {}),
		"after a false proof": inTLS(func(c *conn) {
			c.nc.Write(challenge{secret: true, instance: "group", proof: make([]byte, 32)}.append(nil))
		}),
		"without a secret": inTLS(func(c *conn) { c.nc.Write(challenge{instance: "group"}.append(nil)) }),
	}
}

// TestDialIsNotRedirected is TestResumeIsNotRedirected for clients without a session.
func TestDialIsNotRedirected(t *testing.T) {
	trap, named := startServer(t, memberOptions())
	for name, answer := range redirectsWithoutProof(named) {
		t.Run(name, func(t *testing.T) {
			addr := listen(t, answer)
			if _, err := Dial(t.Context(), memberDial(addr)); err == nil || servedAt(err) != "" {
				t.Errorf("Dial returned %v", err)
			}
			if _, err := Probe(t.Context(), memberDial(addr)); err == nil || servedAt(err) != "" {
				t.Errorf("Probe returned %v", err)
			}
			if n := trap.Stats().Accepted; n != 0 {
				t.Errorf("the named address got %d connections", n)
			}
		})
	}
}

// TestRedirectOfUnverifiedPeer lets a member that DialOptions.Verify rejects name an address.
func TestRedirectOfUnverifiedPeer(t *testing.T) {
	serving, at := startServer(t, memberOptions())
	_, first := startMember(t, always(at))
	opts := memberDial(first)
	opts.Verify = func(nc net.Conn) error {
		if nc.RemoteAddr().String() == first {
			return errors.New("another user's")
		}
		return nil
	}
	_, err := Dial(t.Context(), opts)
	checkObstacle(t, err, ObstacleForeign, false, "another user's")
	if n := serving.Stats().Accepted; n != 0 {
		t.Errorf("the named address got %d connections", n)
	}
}
