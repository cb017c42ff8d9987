package elastic

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// A session survives a broken connection: nobody stops.
func TestBrokenConnectionIsResumed(t *testing.T) {
	t.Parallel()
	host, guest, p := growBehindProxy(t)
	for range 3 {
		p.reset()
		for over := time.After(500 * time.Millisecond); over != nil; {
			var s rdzv.Stop
			select {
			case s = <-guest.Stops():
			case s = <-host.Stops():
			case <-over:
				over, s.Round = nil, rounds.NoRound
			}
			if s.Round != rounds.NoRound {
				t.Fatalf("%+v", s)
			}
		}
	}
}

// An agent whose store does not answer stops its workers well before others may consider it lost, and gives up after
// the join timeout.
func TestSilentStoreStopsWorkers(t *testing.T) {
	t.Parallel()
	j := job(1, 2)
	j.JoinTimeout = 5 * time.Second
	host, guest, p := growJobBehindProxy(t, j)
	p.holdBack()
	began := time.Now() // no keep-alive since then is answered
	s := awaitStop(t, "the guest's stop", guest)
	ttl := 2 * time.Second
	if early, late := time.Until(s.KillBy) > ttl/2, s.KillBy.After(began.Add(ttl)); s.KillBy.IsZero() || early || late {
		t.Errorf("stopped after %v with KillBy %v after the start, TTL %v", time.Since(began), s.KillBy.Sub(began), ttl)
	}
	in := enter(t, guest, nil)
	if s := awaitStop(t, "the host's stop", host); !strings.Contains(s.Why, "guest was lost") {
		t.Errorf("host: %+v", s)
	}
	if left := time.Until(s.KillBy); left > 0 {
		t.Errorf("the guest counted as lost %v before its workers had to be dead", left)
	}
	if got := await(t, "the host alone", enter(t, host, nil)); got.err != nil || got.round.WorldSize != 1 ||
		got.round.Restarts != 0 {
		t.Errorf("host: %+v", got)
	}
	if got := await(t, "the guest's end", in); !errors.Is(got.err, rdzv.ErrConnection) {
		t.Errorf("guest: %+v", got)
	}
	if since := time.Since(began); since < j.JoinTimeout {
		t.Errorf("the guest gave up after %v, before the join timeout", since)
	}
}

// A node joins again when the store answers, even if its session has expired meanwhile.
func TestSilentStoreAnswersAgain(t *testing.T) {
	t.Parallel()
	host, guest, p := growBehindProxy(t)
	p.holdBack()
	awaitStop(t, "the guest's stop", guest)
	in := enter(t, guest, nil)
	awaitStop(t, "the host's stop", host)
	if got := await(t, "the host alone", enter(t, host, nil)); got.err != nil || got.round.WorldSize != 1 {
		t.Fatalf("host: %+v", got)
	}
	select {
	case got := <-in:
		t.Fatalf("the guest gave up: %+v", got)
	case <-time.After(3 * time.Second): // its session lives for 2s
	}
	p.resume()
	awaitStop(t, "growth", host)
	again := enter(t, host, nil)
	for what, w := range map[string]<-chan joined{"host": again, "guest": in} {
		if got := await(t, what, w); got.err != nil || got.round.WorldSize != 2 || got.round.Restarts != 0 {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

// An agent that finds another store in place of its own joins that one once its workers have ended.
func TestStoreIsReplaced(t *testing.T) {
	host, guest, p := growBehindProxy(t)
	other := replaceStore(t, host, p)
	if s := awaitStop(t, "the guest's stop", guest); s.KillBy.IsZero() || time.Until(s.KillBy) > 0 {
		t.Errorf("the guest does not have to kill its workers at once: %+v", s)
	}
	grow(t, other, guest)
}

// replaceStore makes the proxy lead to another store of host's run, and returns the agent that runs alone there.
func replaceStore(t *testing.T, host *Handler, p *proxy) (other *Handler) {
	t.Helper()
	other = startJob(t, host.opts.Job, 1, func(_ int, h *Handler) {
		h.opts.Node.Host, h.opts.Node.Identity = "other", "other"
	})[0]
	p.redirect(fmt.Sprintf("127.0.0.1:%d", other.opts.Access.(*C10d).Ports[0]))
	p.reset()
	return other
}

// The session is lost first, and the store is replaced while the agent stops its workers.
func TestStoreIsReplacedAfterSessionLoss(t *testing.T) {
	host, guest, p := growBehindProxy(t)
	endSession(t, host, guest)
	awaitStop(t, "the guest's stop", guest)
	grow(t, replaceStore(t, host, p), guest)
}

// An agent with a shared run id does not join the new store, which may belong to another job.
func TestReplacedStoreOfASharedRunID(t *testing.T) {
	host, guest, p := growJobBehindProxy(t, job(1, 2), func(guest *Handler) { guest.opts.SharedRunID = true })
	replaceStore(t, host, p)
	awaitStop(t, "the guest's stop", guest)
	if got := await(t, "the guest's end", enter(t, guest, nil)); !errors.Is(got.err, coord.ErrReplaced) {
		t.Errorf("guest: %+v", got)
	}
}

// The watchdog has no deadline once the workers have ended. It would also kill the processes that the agent starts
// then, such as the preflight command.
func TestWatchdogIsClearedAfterTheStop(t *testing.T) {
	for _, tt := range []struct {
		name string
		lose func(host, guest *Handler)
	}{
		{"session lost", func(host, guest *Handler) { endSession(t, host, guest) }},
		{"store closed", func(host, _ *Handler) { _ = host.opts.Access.(*C10d).hosted().server.Close() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := job(1, 2)
			j.LastCall = 0
			host := startJob(t, j, 1, nil)[0]
			guest, _ := newProxiedHandler(t, j, host, "guest")
			deadlines := make(chan time.Duration, 1000)
			guest.opts.Watchdog = func(at time.Duration) { deadlines <- at }
			grow(t, host, guest)
			for at := time.Duration(0); at == 0; { // set while workers may run
				at = await(t, "a deadline", deadlines)
			}
			tt.lose(host, guest)
			awaitStop(t, "the guest's stop", guest)
			guest.Stopped()
			for at := time.Duration(1); at != 0; {
				at = await(t, "the end of the deadline", deadlines)
			}
		})
	}
}

// If the others cannot reach the worker store of rank 0 they go on without that node, and it waits.
func TestUnreachableRank0(t *testing.T) {
	t.Parallel()
	hs, waits := enterAll(t, job(2, 3), 3, func(i int, h *Handler) {
		if i == 0 {
			h.opts.Stores.Offers = func() []string { return []string{"240.0.0.1"} } // nobody has this address
		}
	})
	if got := await(t, "rank 0", waits[0]); got.err != nil || got.round.Rank != 0 || got.round.WorldSize != 3 {
		t.Fatalf("node 0: %+v", got)
	}
	if s := awaitStop(t, "the end of the round", hs[0]); !strings.Contains(s.Why,
		"node1, node2 did not reach the worker store on node0, rank 0") {
		t.Errorf("the round ended: %q", s.Why)
	}
	aside := enter(t, hs[0], nil)
	for i, w := range waits[1:] {
		if got := await(t, "the round without node 0", w); got.err != nil || got.round.Rank != i ||
			got.round.WorldSize != 2 || got.round.Restarts != 0 {
			t.Fatalf("node %d: %+v", i+1, got)
		}
	}
	for over := time.After(time.Second); over != nil; {
		select {
		case got := <-aside:
			t.Fatalf("node 0 entered a round or ended: %+v", got)
		case s := <-hs[1].Stops():
			if s.Round != rounds.NoRound {
				t.Fatalf("the round ended: %+v", s)
			}
		case <-over:
			over = nil
		}
	}
}

// A torch store at the endpoint is not the run's store.
func TestUnknownPeerAtTheEndpoint(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	peer := rdzv.ServeWorkerStore(ln, tcpstore.ServerOptions{})
	defer peer.Close()
	h := newTestHandler(t, job(1, 2), peer.Port(), "node")
	got := await(t, "answer", enter(t, h, nil))
	var taken *rdzv.ListenError
	if !errors.As(got.err, &taken) || taken.Port != peer.Port() || !strings.Contains(got.err.Error(), "torch") {
		t.Errorf("%v", got.err)
	}
}

func TestUnreachableStore(t *testing.T) {
	j := job(1, 2)
	j.JoinTimeout = 500 * time.Millisecond
	h := newTestHandler(t, j, testenv.FreePort(t), "node")
	no := false
	h.opts.Access.(*C10d).IsHost = &no
	got := await(t, "answer", enter(t, h, nil))
	if !errors.Is(got.err, rdzv.ErrConnection) || !errors.Is(got.err, coord.ErrUnavailable) ||
		!strings.Contains(got.err.Error(), "127.0.0.1") {
		t.Errorf("%v", got.err)
	}
}
