package elastic

import (
	"context"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// job returns a job of least to most nodes, whose fields tests change.
func job(least, most int) rounds.Job {
	return rounds.Job{
		Version: "test", Min: least, Max: most, LastCall: 10 * time.Second, JoinTimeout: 20 * time.Second,
		Rejoin: 5 * time.Second, MaxNodeLosses: 3, Grow: rounds.GrowNow, ResultTTL: time.Minute,
	}
}

// newTestHandler returns the handler of an agent whose store is at a port of this machine. The test shuts it down.
func newTestHandler(t *testing.T, j rounds.Job, port int, name string) *Handler {
	t.Helper()
	log := zerolog.New(zerolog.NewTestWriter(t)).With().Str("agent", name).Logger()
	access := &C10d{
		RunID: "run", Version: "test", TTL: 2 * time.Second, Host: "127.0.0.1", Ports: []int{port},
		Hint: -1, Linger: 5 * time.Second, Logger: log,
	}
	h := New(Options{
		Backend: "c10d", RunID: "run", Job: j, Node: rounds.Node{
			Host: name, Identity: name, Hint: -1,
			Launch: rounds.Launch{ID: "test"},
		}, Access: access,
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

// joined is what NextRendezvous returned.
type joined struct {
	round *rdzv.Round
	err   error
}

// enter calls NextRendezvous and returns where its result will arrive.
func enter(t *testing.T, h *Handler, f *rdzv.Failure) <-chan joined {
	t.Helper()
	out := make(chan joined, 1)
	go func() {
		r, err := h.NextRendezvous(t.Context(), rdzv.Member{Role: "r", LocalWorldSize: 2, Failure: f})
		out <- joined{r, err}
	}()
	return out
}

// await receives from c, or fails the test.
func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("%s: nothing happened in a minute", what)
		panic("unreachable")
	}
}

// enterAll makes n agents enter the first round of a job, the first of which hosts the store. change, if not nil,
// changes each of them before it enters.
func enterAll(t *testing.T, j rounds.Job, n int, change func(i int, h *Handler)) ([]*Handler, []<-chan joined) {
	t.Helper()
	port := testenv.FreePort(t)
	hs := make([]*Handler, n)
	waits := make([]<-chan joined, n)
	for i := range hs {
		hs[i] = newTestHandler(t, j, port, fmt.Sprintf("node%d", i))
		if change != nil {
			change(i, hs[i])
		}
		waits[i] = enter(t, hs[i], nil)
		if i == 0 {
			awaitHost(t, hs[0])
		}
	}
	return hs, waits
}

// startJob is enterAll for a round of all agents. It returns them in rank order once the round is decided.
func startJob(t *testing.T, j rounds.Job, n int, change func(i int, h *Handler)) []*Handler {
	t.Helper()
	hs, waits := enterAll(t, j, n, change)
	for i, w := range waits {
		if got := await(t, "first round", w); got.err != nil || got.round.Rank != i {
			t.Fatalf("node %d: %+v", i, got)
		}
	}
	return hs
}

// awaitHost waits until h hosts the store, or keeps it together with others.
func awaitHost(t *testing.T, h *Handler) {
	t.Helper()
	a := h.opts.Access.(*C10d)
	for deadline := time.Now().Add(time.Minute); a.hosted() == nil && a.storeMember() == nil; {
		if time.Now().After(deadline) {
			t.Fatal("the first agent does not host the store")
		}
		runtime.Gosched()
	}
}

// newProxiedHandler returns the handler of an agent that reaches host's store through a proxy.
func newProxiedHandler(t *testing.T, j rounds.Job, host *Handler, name string) (*Handler, *proxy) {
	t.Helper()
	p := newProxy(t, fmt.Sprintf("127.0.0.1:%d", host.opts.Access.(*C10d).Ports[0]))
	h := newTestHandler(t, j, p.port(), name)
	no := false
	h.opts.Access.(*C10d).IsHost = &no
	return h, p
}

// growBehindProxy starts a job of one node, which an agent behind a proxy then joins.
func growBehindProxy(t *testing.T) (host, guest *Handler, p *proxy) {
	t.Helper()
	return growJobBehindProxy(t, job(1, 2))
}

// growJobBehindProxy is growBehindProxy for the job j. change changes the guest before it joins.
func growJobBehindProxy(t *testing.T, j rounds.Job, change ...func(guest *Handler)) (host, guest *Handler, p *proxy) {
	t.Helper()
	j.LastCall = 0
	host = startJob(t, j, 1, nil)[0]
	guest, p = newProxiedHandler(t, j, host, "guest")
	for _, c := range change {
		c(guest)
	}
	grow(t, host, guest)
	return host, guest, p
}

// grow makes guest join the job of host, which runs alone.
func grow(t *testing.T, host, guest *Handler) {
	t.Helper()
	in := enter(t, guest, nil)
	awaitStop(t, "growth", host)
	again := enter(t, host, nil)
	for what, w := range map[string]<-chan joined{"host": again, "guest": in} {
		if got := await(t, what, w); got.err != nil || got.round.WorldSize != 2 || got.round.Restarts != 0 {
			t.Fatalf("%s: %+v", what, got)
		}
	}
}

// awaitStop waits for a Stop that concerns a round, which a probe does not.
func awaitStop(t *testing.T, what string, h *Handler) rdzv.Stop {
	t.Helper()
	for {
		if s := await(t, what, h.Stops()); s.Round != rounds.NoRound {
			return s
		}
	}
}

// endSession ends the session of guest in host's store.
func endSession(t *testing.T, host, guest *Handler) {
	t.Helper()
	at, client := host.opts.Access.(*C10d), guest.opts.Access.(*C10d).client
	opts := coord.DialOptions{Addr: fmt.Sprintf("127.0.0.1:%d", at.Ports[0]), Version: at.Version, RunID: at.RunID}
	if err := coord.EndSession(t.Context(), opts, client.Token()); err != nil {
		t.Fatal(err)
	}
}

// checksum returns a short text for a name that does not fit into a run id.
func checksum(name string) string { return fmt.Sprintf("%x", crc32.ChecksumIEEE([]byte(name))) }

// uniqueRunID returns a run id that no other test, and no other process of this machine, has.
func uniqueRunID(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), os.Getpid())
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
