package coord

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// pendingAt connects to a store, and says nothing. It returns a channel that is closed when the store ends the connection.
func pendingAt(s *Server) (<-chan struct{}, func()) {
	here, there := net.Pipe()
	s.ServeConn(there)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, here)
	}()
	return ended, func() { _ = here.Close() }
}

func isClosed(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Connections without a session are bounded, and give way in the order in which they came; those with one stay.
func TestPendingConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(ServerOptions{MaxMemory: 1 << 20})
		defer s.Close()
		way := &pipes{server: s}
		agent := dial(t, DialOptions{Addr: "pipe", Conn: way.dial, TTL: time.Hour})
		var pending []<-chan struct{}
		for range leastPending + 1 {
			ended, leave := pendingAt(s)
			defer leave()
			pending = append(pending, ended)
		}
		if !isClosed(pending[0]) || isClosed(pending[1]) {
			t.Error("not the oldest is closed, or not it alone")
		}
		if n := s.ShedPending(2); n != 2 || !isClosed(pending[2]) || isClosed(pending[3]) {
			t.Errorf("%d are closed", n)
		}
		put(t, agent, Op{Key: "k"})
		<-time.After(s.opts.HandshakeTimeout)
		for i, p := range pending {
			if !isClosed(p) {
				t.Errorf("connection %d may be silent for ever", i)
			}
		}
		if n := s.ShedPending(1); n != 0 {
			t.Errorf("%d are closed, and none is pending", n)
		}
		put(t, agent, Op{Key: "k"})
		closeStore(t, agent)
	})
}
