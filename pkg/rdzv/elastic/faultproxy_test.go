package elastic

import (
	"net"
	"sync"
	"testing"
)

// proxy forwards connections to a port of this machine. Tests make it fail.
type proxy struct {
	ln   net.Listener
	wait sync.WaitGroup

	mu     sync.Mutex
	to     string
	hold   bool // bytes are read and not forwarded
	refuse bool // new connections are closed at once
	conns  []net.Conn
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, to: to}
	p.wait.Go(p.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		p.reset()
		p.wait.Wait()
	})
	return p
}

func (p *proxy) port() int { return p.ln.Addr().(*net.TCPAddr).Port }

func (p *proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		to := p.to
		p.mu.Unlock()
		s, err := net.Dial("tcp", to)
		p.mu.Lock()
		if err != nil || p.refuse {
			_ = c.Close()
			if s != nil {
				_ = s.Close()
			}
		} else {
			p.conns = append(p.conns, c, s)
			p.wait.Go(func() { p.copy(c, s) })
			p.wait.Go(func() { p.copy(s, c) })
		}
		p.mu.Unlock()
	}
}

func (p *proxy) copy(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		p.mu.Lock()
		hold := p.hold
		p.mu.Unlock()
		if !hold {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
	}
}

// reset closes every connection. It forwards new ones.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// holdBack stops forwarding bytes.
func (p *proxy) holdBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = true
}

// resume forwards bytes again, over new connections.
func (p *proxy) resume() {
	p.mu.Lock()
	p.hold = false
	p.mu.Unlock()
	p.reset()
}

// redirect forwards later connections to another address.
func (p *proxy) redirect(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}
