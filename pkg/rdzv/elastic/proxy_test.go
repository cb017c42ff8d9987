package elastic

import (
	"net"
	"sync"
	"testing"
)

// proxy passes connections on to a port of this machine until it is told not to.
type proxy struct {
	ln   net.Listener
	wait sync.WaitGroup

	mu     sync.Mutex
	to     string
	silent bool // what comes is read and kept back
	shut   bool // connections are closed as they come
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
		if err != nil || p.shut {
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
		silent := p.silent
		p.mu.Unlock()
		if !silent {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
	}
}

// reset closes every connection; new ones are served.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// hush keeps everything back from now on.
func (p *proxy) hush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
}

// speak lets everything through again, over new connections.
func (p *proxy) speak() {
	p.mu.Lock()
	p.silent = false
	p.mu.Unlock()
	p.reset()
}

// lead passes later connections on to another port.
func (p *proxy) lead(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}
