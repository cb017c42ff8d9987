package transport

import (
	"net"
	"sync"
	"testing"
)

// proxy forwards connections to a server and disturbs them.
type proxy struct {
	ln     net.Listener
	target string
	limit  int // bytes from the server, after which a connection is closed; 0 means none

	wg     sync.WaitGroup
	frozen chan struct{} // closed when forwarding stops
	done   chan struct{} // closed at the end of the test

	mu    sync.Mutex
	conns []net.Conn
}

func newProxy(t *testing.T, target string, limit int) *proxy {
	t.Helper()
	p := &proxy{ln: listen(t), target: target, limit: limit, frozen: make(chan struct{}), done: make(chan struct{})}
	p.wg.Go(p.run)
	t.Cleanup(func() {
		close(p.done)
		p.ln.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

func (p *proxy) run() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.wg.Go(func() { p.pass(server, client, 0) })
		p.wg.Go(func() { p.pass(client, server, p.limit) })
	}
}

// pass forwards one direction until one side ends, and then closes both.
func (p *proxy) pass(to, from net.Conn, limit int) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for passed := 0; limit == 0 || passed < limit; {
		n, err := from.Read(buffer)
		select {
		case <-p.frozen:
			<-p.done
			return
		default:
		}
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
		passed += n
	}
}

// cut closes all present connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// freeze keeps all connections but forwards nothing.
func (p *proxy) freeze() { close(p.frozen) }
