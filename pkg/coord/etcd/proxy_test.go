package etcd

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// proxy is a network link that a test can cut, break and slow down.
type proxy struct {
	target string

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when cut or delay changes
	cut     bool          // data waits; connections stay, and new ones are accepted
	delay   time.Duration // of each piece of data, each way
	conns   map[net.Conn]struct{}
	dead    map[net.Conn]bool // connections that drop everything silently
	closed  bool

	listener net.Listener
	group    sync.WaitGroup
}

// newProxy returns a proxy to an address. It ends with the test.
func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{
		target: target, changed: make(chan struct{}), conns: make(map[net.Conn]struct{}),
		dead: make(map[net.Conn]bool), listener: listener,
	}
	p.group.Go(p.serve)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) url() string { return "http://" + p.listener.Addr().String() }

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.listener.Close()
	p.set(func() { p.cut = false })
	p.reset()
	p.group.Wait()
}

// set changes how the link behaves.
func (p *proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// reset closes all connections with RST.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
		c.Close()
	}
}

// forget makes the link drop its connections silently, as a firewall does. New connections are possible.
func (p *proxy) forget() {
	p.set(func() {
		for c := range p.conns {
			p.dead[c] = true
		}
	})
}

func (p *proxy) add(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
	if p.closed {
		c.Close()
	}
}

func (p *proxy) serve() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.add(near)
		p.group.Go(func() {
			defer near.Close()
			var d net.Dialer
			far, err := d.DialContext(context.Background(), "tcp", p.target)
			if err != nil {
				return
			}
			p.add(far)
			defer far.Close()
			var both sync.WaitGroup
			both.Go(func() { p.pump(far, near) })
			both.Go(func() { p.pump(near, far) })
			both.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.conns, near)
			delete(p.conns, far)
		})
	}
}

// pump copies one direction.
func (p *proxy) pump(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.wait(from)
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			p.wait(from) // a cut link does not report an end either
			return
		}
	}
}

// wait waits until the link lets data of a connection pass.
func (p *proxy) wait(c net.Conn) {
	p.mu.Lock()
	delay := p.delay
	for (p.cut || p.dead[c]) && !p.closed {
		changed := p.changed
		p.mu.Unlock()
		<-changed
		p.mu.Lock()
	}
	p.mu.Unlock()
	if delay > 0 {
		timer := time.NewTimer(delay)
		<-timer.C
	}
}
