package elastic

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// wantFree checks that nobody listens at a port of this machine.
func wantFree(t *testing.T, what string, port int) {
	t.Helper()
	nc, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err == nil {
		nc.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%s: %v, want that nobody listens", what, err)
	}
}

// TestWorkerStoreLeavesPort ends a job. As soon as a node's session has ended, a rerun may begin there, so that the
// node's worker store must have left its port before.
func TestWorkerStoreLeavesPort(t *testing.T) {
	hs := startJob(t, job(2, 2), 2, nil)
	hs[0].mu.Lock()
	port := hs[0].store.Port()
	hs[0].mu.Unlock()
	wantSuccess(t, hs...)
	wantFree(t, "the worker store of a node that has ended", port)
}

// slowReader is a connection whose peer waits for each write.
type slowReader struct {
	net.Conn
	slow chan struct{} // closed when Read takes no second byte any more
	done chan struct{} // closed when Read goes on
}

func (r *slowReader) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b[:1])
	select {
	case <-r.slow:
		<-r.done
	default:
	}
	return n, err
}

// TestStoreLeavesPortBeforeItEnds ends a host whose store takes a while to end. Meanwhile the port must not answer: an
// agent that found only the workers' protocol there would take it for a store of torch's and end.
func TestStoreLeavesPortBeforeItEnds(t *testing.T) {
	hs := startJob(t, job(1, 1), 1, nil)
	at := hs[0].opts.Access.(*C10d).hosted()
	reader := &slowReader{slow: make(chan struct{}), done: make(chan struct{})}
	client, err := coord.Dial(t.Context(), coord.DialOptions{
		Addr: "pipe", Version: "test", RunID: "run",
		Conn: func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			at.server.ServeConn(there)
			reader.Conn = here
			return reader, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	close(reader.slow)
	ended := make(chan error, 1)
	go func() { ended <- hs[0].Shutdown(t.Context()) }()
	await(t, "the store's end", at.server.Ended())
	wantFree(t, "a store that ends", hs[0].opts.Access.(*C10d).Ports[0])
	close(reader.done)
	if err := await(t, "the host's end", ended); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_ = client.Close(ctx) // its store has gone
}
