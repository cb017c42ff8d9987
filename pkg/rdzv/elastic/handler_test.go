package elastic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// job is one that tests vary.
func job(least, most int) Job {
	return Job{
		Version: "test", Min: least, Max: most, LastCall: 10 * time.Second, JoinTimeout: 20 * time.Second,
		Rejoin: 5 * time.Second, MaxNodeLosses: 3, Grow: GrowNow, ResultTTL: time.Minute,
	}
}

// freeTCPPort is one that nothing listened on a moment ago.
func freeTCPPort(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// newTestHandler makes an agent of a job whose store is at a port of this machine.
func newTestHandler(t *testing.T, j Job, port int, name string) *Handler {
	t.Helper()
	log := zerolog.New(zerolog.NewTestWriter(t)).With().Str("agent", name).Logger()
	access := &C10d{RunID: "run", Version: "test", TTL: 2 * time.Second, Host: "127.0.0.1", Ports: []int{port}, Hint: -1, Linger: 5 * time.Second, Logger: log}
	h := New(Options{
		Backend: "c10d", RunID: "run", Job: j, Node: Node{Host: name, Identity: name, Hint: -1, Launch: Launch{ID: "test"}}, Access: access,
		Stores:    WorkerStores{Offers: func() []string { return []string{"127.0.0.1"} }},
		KeepAlive: 200 * time.Millisecond, Timeout: time.Second, Logger: log,
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		if err := h.Shutdown(ctx); err != nil {
			t.Errorf("%s: Shutdown: %v", name, err)
		}
	})
	return h
}

type joined struct {
	round *rdzv.Round
	err   error
}

// enter enters the next round.
func enter(t *testing.T, h *Handler, f *rdzv.Failure) <-chan joined {
	t.Helper()
	out := make(chan joined, 1)
	go func() {
		r, err := h.NextRendezvous(t.Context(), rdzv.Member{Role: "r", LocalWorldSize: 2, Failure: f})
		out <- joined{r, err}
	}()
	return out
}

func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(15 * time.Second):
		t.Fatalf("%s: nothing in 15 s", what)
		panic("unreachable")
	}
}

func TestHandlersOverSockets(t *testing.T) {
	port := freeTCPPort(t)
	var hs []*Handler
	var waits []<-chan joined
	j := job(2, 3)
	j.MaxRestarts = 1
	for i := range 3 {
		hs = append(hs, newTestHandler(t, j, port, fmt.Sprintf("node%d", i)))
		waits = append(waits, enter(t, hs[i], nil))
	}
	for i, w := range waits {
		got := await(t, "first round", w)
		if got.err != nil {
			t.Fatal(got.err)
		}
		if r := got.round; r.Rank != i || r.WorldSize != 3 || r.Assignment.GlobalBase != 2*i || r.Number != 0 || r.MasterAddr != "127.0.0.1" {
			t.Fatalf("node %d: round %+v", i, r)
		}
	}
	f := rdzv.Failure{Host: "node1", GlobalRank: 2, ExitCode: 3}
	hs[1].Fail(f)
	for _, i := range []int{0, 2} {
		if s := realStop(t, "stop", hs[i]); s.Round != 0 {
			t.Errorf("stop %+v", s)
		}
	}
	waits = []<-chan joined{enter(t, hs[0], nil), enter(t, hs[1], &f), enter(t, hs[2], nil)}
	for i, w := range waits {
		got := await(t, "second round", w)
		if got.err != nil {
			t.Fatal(got.err)
		}
		if r := got.round; r.Rank != i || r.Number != 1 || r.Restarts != 1 {
			t.Fatalf("node %d: round %+v", i, r)
		}
	}
	ends := make(chan error, 3)
	for _, h := range hs {
		go func() {
			_, err := h.Succeed(t.Context())
			ends <- err
		}()
	}
	for range hs {
		if err := await(t, "end", ends); err != nil {
			t.Error(err)
		}
	}
	late := newTestHandler(t, j, port, "late")
	got := await(t, "late joiner", enter(t, late, nil))
	var end *rdzv.EndedError
	if !errors.As(got.err, &end) || end.Outcome.Ending != rdzv.EndSucceeded {
		t.Errorf("a late joiner: %v", got.err)
	}
}
