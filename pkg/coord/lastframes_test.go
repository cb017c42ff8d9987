package coord

import (
	"context"
	"errors"
	"net"
	"testing"
)

// pausedConn is the connection of a client that was paused: its next reads wait for resume, its writes do not.
type pausedConn struct {
	net.Conn
	pauses chan struct{} // each value makes one Read wait
	paused chan struct{} // closed when a Read waits
	resume chan struct{}
	writes chan error // the result of each Write
}

func (p *pausedConn) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b[:1]) // one byte, so that most of a frame is still in the kernel
	select {
	case <-p.pauses:
		close(p.paused)
		<-p.resume
	default:
	}
	return n, err
}

func (p *pausedConn) Write(b []byte) (int, error) {
	n, err := p.Conn.Write(b)
	p.writes <- err
	return n, err
}

// TestLastFrameAfterPause pauses a client while its store writes the last change and ends. When the client goes on, it
// writes before it reads, and the store's machine answers with a reset.
func TestLastFrameAfterPause(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	paused := &pausedConn{
		pauses: make(chan struct{}, 1), paused: make(chan struct{}), resume: make(chan struct{}),
		writes: make(chan error, 16),
	}
	c, err := Dial(t.Context(), DialOptions{Addr: addr, Conn: func(ctx context.Context) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil || paused.Conn != nil {
			return nc, err
		}
		paused.Conn = nc
		return paused, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(t, c) })
	l := openLocal(t, s)
	seen, lost := make(chan Batch, 2), make(chan error, 1)
	go func() {
		lost <- c.Watch(t.Context(), "answer", func(b Batch) error {
			seen <- b
			return nil
		})
	}()
	next(t, seen, "the first batch")

	paused.pauses <- struct{}{}
	revision := put(t, l, Op{Key: "answer", Value: []byte("end")})
	next(t, paused.paused, "the first byte of the change")
	if err := s.CloseWith("the node that hosted it has ended"); err != nil {
		t.Fatal(err)
	}
	for len(paused.writes) > 0 { // of the handshake and the watch
		<-paused.writes
	}
	for broken := false; !broken; broken = next(t, paused.writes, "a write") != nil { // a reset answers the first one
		_, _, _, err := c.request(t.Context(), func(n int64) []byte { return appendNumbered(nil, kindKeepAlive, n) })
		if err != nil {
			t.Fatal(err)
		}
	}
	close(paused.resume)
	wantBatch(t, seen, Batch{Revision: revision, Events: []Event{
		{Key: "answer", Value: []byte("end"), Create: revision},
	}})
	if err := next(t, lost, "the loss"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v, want %v", err, ErrUnavailable)
	}
}
