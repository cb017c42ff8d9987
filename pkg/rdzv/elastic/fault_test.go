package elastic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// formed starts n agents, the first of which hosts the store, and returns them in rank order when their first round is decided.
func formed(t *testing.T, j Job, n int) []*Handler {
	t.Helper()
	port := freeTCPPort(t)
	hs := make([]*Handler, n)
	waits := make([]<-chan joined, n)
	for i := range hs {
		hs[i] = newTestHandler(t, j, port, fmt.Sprintf("node%d", i))
		waits[i] = enter(t, hs[i], nil)
		if i == 0 {
			hosting(t, hs[0])
		}
	}
	for i, w := range waits {
		if got := await(t, "first round", w); got.err != nil || got.round.Rank != i {
			t.Fatalf("node %d: %+v", i, got)
		}
	}
	return hs
}

// hosting waits until h hosts the store.
func hosting(t *testing.T, h *Handler) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); h.opts.Access.(*C10d).hosted() == nil; {
		if time.Now().After(deadline) {
			t.Fatal("the first agent does not host the store")
		}
		runtime.Gosched()
	}
}

// behind starts an agent that reaches the store of another one through a proxy.
func behind(t *testing.T, j Job, host *Handler, name string) (*Handler, *proxy) {
	t.Helper()
	p := newProxy(t, fmt.Sprintf("127.0.0.1:%d", host.opts.Access.(*C10d).Ports[0]))
	h := newTestHandler(t, j, p.port(), name)
	no := false
	h.opts.Access.(*C10d).IsHost = &no
	return h, p
}

// grown has an agent behind a proxy join a job of one.
func grown(t *testing.T) (host, guest *Handler, p *proxy) {
	t.Helper()
	return grownJob(t, job(1, 2))
}

func grownJob(t *testing.T, j Job, change ...func(guest *Handler)) (host, guest *Handler, p *proxy) {
	t.Helper()
	j.LastCall = 0
	host = formed(t, j, 1)[0]
	guest, p = behind(t, j, host, "guest")
	for _, c := range change {
		c(guest)
	}
	grow(t, host, guest)
	return host, guest, p
}

// grow has an agent join a job of one.
func grow(t *testing.T, host, guest *Handler) {
	t.Helper()
	in := enter(t, guest, nil)
	realStop(t, "growth", host)
	again := enter(t, host, nil)
	for what, w := range map[string]<-chan joined{"host": again, "guest": in} {
		if got := await(t, what, w); got.err != nil || got.round.WorldSize != 2 || got.round.Restarts != 0 {
			t.Fatalf("%s: %+v", what, got)
		}
	}
}

func TestBrokenConnectionIsResumed(t *testing.T) {
	host, guest, p := grown(t)
	for range 3 {
		p.reset()
		for over := time.After(500 * time.Millisecond); over != nil; {
			var s rdzv.Stop
			select {
			case s = <-guest.Stops():
			case s = <-host.Stops():
			case <-over:
				over, s.Round = nil, noRound
			}
			if s.Round != noRound {
				t.Fatalf("%+v", s)
			}
		}
	}
}

// realStop waits for a Stop that is about a round.
func realStop(t *testing.T, what string, h *Handler) rdzv.Stop {
	t.Helper()
	for {
		if s := await(t, what, h.Stops()); s.Round != noRound {
			return s
		}
	}
}

func TestSilence(t *testing.T) {
	j := job(1, 2)
	j.JoinTimeout = 5 * time.Second
	host, guest, p := grownJob(t, j)
	began := time.Now()
	p.hush()
	s := realStop(t, "the guest's stop", guest)
	ttl := 2 * time.Second
	if early, late := time.Since(began) < ttl/3, s.KillBy.After(began.Add(ttl)); s.KillBy.IsZero() || early || late {
		t.Errorf("told after %v to be done at %v of %v", time.Since(began), s.KillBy.Sub(began), ttl)
	}
	in := enter(t, guest, nil)
	if s := realStop(t, "the host's stop", host); !strings.Contains(s.Why, "guest was lost") {
		t.Errorf("host: %+v", s)
	}
	if since := time.Since(began); since < ttl*5/6 {
		t.Errorf("the guest was taken for lost after %v, before its workers had to be dead", since)
	}
	if got := await(t, "the host alone", enter(t, host, nil)); got.err != nil || got.round.WorldSize != 1 || got.round.Restarts != 0 {
		t.Errorf("host: %+v", got)
	}
	if got := await(t, "the guest's end", in); !errors.Is(got.err, rdzv.ErrConnection) {
		t.Errorf("guest: %+v", got)
	}
	if since := time.Since(began); since < j.JoinTimeout {
		t.Errorf("the guest gave up after %v, before the join timeout", since)
	}
}

// TestSilencePasses: a node that the store has not answered for longer than its session lives joins again when the store answers.
func TestSilencePasses(t *testing.T) {
	host, guest, p := grown(t)
	p.hush()
	realStop(t, "the guest's stop", guest)
	in := enter(t, guest, nil)
	realStop(t, "the host's stop", host)
	if got := await(t, "the host alone", enter(t, host, nil)); got.err != nil || got.round.WorldSize != 1 {
		t.Fatalf("host: %+v", got)
	}
	select {
	case got := <-in:
		t.Fatalf("the guest gave up: %+v", got)
	case <-time.After(3 * time.Second): // its session lived for 2
	}
	p.speak()
	realStop(t, "growth", host)
	again := enter(t, host, nil)
	for what, w := range map[string]<-chan joined{"host": again, "guest": in} {
		if got := await(t, what, w); got.err != nil || got.round.WorldSize != 2 || got.round.Restarts != 0 {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

// TestStoreIsReplaced: an agent that finds another store in place of its own joins that one, once its workers are gone.
func TestStoreIsReplaced(t *testing.T) {
	host, guest, p := grown(t)
	port := freeTCPPort(t)
	j := host.opts.Job
	other := newTestHandler(t, j, port, "other")
	first := enter(t, other, nil)
	if got := await(t, "the other host", first); got.err != nil || got.round.WorldSize != 1 {
		t.Fatalf("other: %+v", got)
	}
	p.lead(fmt.Sprintf("127.0.0.1:%d", port))
	p.reset()
	if s := realStop(t, "the guest's stop", guest); s.KillBy.IsZero() || time.Until(s.KillBy) > 0 {
		t.Errorf("the guest was not told to kill its workers at once: %+v", s)
	}
	in := enter(t, guest, nil)
	realStop(t, "growth", other)
	again := enter(t, other, nil)
	for what, w := range map[string]<-chan joined{"other": again, "guest": in} {
		if got := await(t, what, w); got.err != nil || got.round.WorldSize != 2 {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

// TestStoreIsReplacedMeanwhile: the session is lost first, and the store is replaced while the agent stops its workers.
func TestStoreIsReplacedMeanwhile(t *testing.T) {
	host, guest, p := grown(t)
	endSessionOf(t, host, guest)
	realStop(t, "the guest's stop", guest)
	port := freeTCPPort(t)
	other := newTestHandler(t, host.opts.Job, port, "other")
	if got := await(t, "the other host", enter(t, other, nil)); got.err != nil || got.round.WorldSize != 1 {
		t.Fatalf("other: %+v", got)
	}
	p.lead(fmt.Sprintf("127.0.0.1:%d", port))
	p.reset()
	in := enter(t, guest, nil)
	realStop(t, "growth", other)
	again := enter(t, other, nil)
	for what, w := range map[string]<-chan joined{"other": again, "guest": in} {
		if got := await(t, what, w); got.err != nil || got.round.WorldSize != 2 {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

// TestReplacedStoreOfASharedRunID: whose run id is not its own does not join what may be another job.
func TestReplacedStoreOfASharedRunID(t *testing.T) {
	host, guest, p := grownJob(t, job(1, 2), func(guest *Handler) { guest.opts.SharedRunID = true })
	port := freeTCPPort(t)
	other := newTestHandler(t, host.opts.Job, port, "other")
	if got := await(t, "the other host", enter(t, other, nil)); got.err != nil {
		t.Fatalf("other: %+v", got)
	}
	p.lead(fmt.Sprintf("127.0.0.1:%d", port))
	p.reset()
	realStop(t, "the guest's stop", guest)
	if got := await(t, "the guest's end", enter(t, guest, nil)); !errors.Is(got.err, coord.ErrReplaced) {
		t.Errorf("guest: %+v", got)
	}
}

// endSessionOf ends an agent's session in the store of host.
func endSessionOf(t *testing.T, host, guest *Handler) {
	t.Helper()
	at, client := host.opts.Access.(*C10d), guest.opts.Access.(*C10d).client
	opts := coord.DialOptions{Addr: fmt.Sprintf("127.0.0.1:%d", at.Ports[0]), Version: at.Version, RunID: at.RunID}
	if err := coord.EndSession(t.Context(), opts, client.Token()); err != nil {
		t.Fatal(err)
	}
}

// Once its workers are gone an agent does what takes its time, such as a check of this machine, and nobody is to kill that as if it were a worker.
func TestNobodyKillsAfterTheStop(t *testing.T) {
	for _, tt := range []struct {
		name string
		lose func(host, guest *Handler)
	}{
		{"its session is lost", func(host, guest *Handler) { endSessionOf(t, host, guest) }},
		{"the store is gone for good", func(host, _ *Handler) { _ = host.opts.Access.(*C10d).Server().Close() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := job(1, 2)
			j.LastCall = 0
			host := formed(t, j, 1)[0]
			guest, _ := behind(t, j, host, "guest")
			deadlines := make(chan time.Duration, 1000)
			guest.opts.Watchdog = func(at time.Duration) { deadlines <- at }
			grow(t, host, guest)
			for at := time.Duration(0); at == 0; { // it is set while workers may run
				at = await(t, "a deadline", deadlines)
			}
			tt.lose(host, guest)
			realStop(t, "the guest's stop", guest)
			guest.Stopped()
			for at := time.Duration(1); at != 0; {
				at = await(t, "the end of the deadline", deadlines)
			}
		})
	}
}

// TestRank0OutOfReach: where the others do not reach the worker store of rank 0, they go on without it, and it waits.
func TestRank0OutOfReach(t *testing.T) {
	port := freeTCPPort(t)
	hs, waits := make([]*Handler, 3), make([]<-chan joined, 3)
	for i := range hs {
		hs[i] = newTestHandler(t, job(2, 3), port, fmt.Sprintf("node%d", i))
		if i == 0 {
			hs[0].opts.Stores.Offers = func() []string { return []string{"240.0.0.1"} } // an address that nothing has
		}
		waits[i] = enter(t, hs[i], nil)
		if i == 0 {
			hosting(t, hs[0])
		}
	}
	if got := await(t, "rank 0", waits[0]); got.err != nil || got.round.Rank != 0 || got.round.WorldSize != 3 {
		t.Fatalf("node 0: %+v", got)
	}
	if s := realStop(t, "the end of the round", hs[0]); !strings.Contains(s.Why, "rank 0, was not reached by node1, node2") {
		t.Errorf("the round ended: %q", s.Why)
	}
	aside := enter(t, hs[0], nil)
	for i, w := range waits[1:] {
		if got := await(t, "the round without node 0", w); got.err != nil || got.round.Rank != i || got.round.WorldSize != 2 || got.round.Restarts != 0 {
			t.Fatalf("node %d: %+v", i+1, got)
		}
	}
	for over := time.After(time.Second); over != nil; {
		select {
		case got := <-aside:
			t.Fatalf("node 0 was let in, or has ended: %+v", got)
		case s := <-hs[1].Stops():
			if s.Round != noRound {
				t.Fatalf("the round was ended: %+v", s)
			}
		case <-over:
			over = nil
		}
	}
}

func TestHostIsLost(t *testing.T) {
	hs := formed(t, job(2, 2), 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := hs[0].Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	for { // the first one may still be the leader's
		s := realStop(t, "stop", hs[1])
		if !s.KillBy.IsZero() && time.Until(s.KillBy) < 2*time.Second {
			break
		}
	}
	if got := await(t, "end", enter(t, hs[1], nil)); !errors.Is(got.err, rdzv.ErrConnection) {
		t.Errorf("%+v", got)
	}
}

func TestLeaveIsNoFailure(t *testing.T) {
	hs := formed(t, job(2, 3), 3)
	hs[2].Leave()
	f := rdzv.Failure{Host: "node1", GlobalRank: 2, ExitCode: 1, Grade: 2}
	hs[1].Fail(f)
	realStop(t, "stop", hs[0])
	waits := []<-chan joined{enter(t, hs[0], nil), enter(t, hs[1], &f)}
	if err := hs[2].Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, w := range waits {
		if got := await(t, "the others", w); got.err != nil || got.round.WorldSize != 2 || got.round.Restarts != 0 {
			t.Errorf("node %d: %+v", i, got)
		}
	}
}

func TestRefused(t *testing.T) {
	j := job(1, 2)
	j.LastCall = 0
	host := formed(t, j, 1)[0]
	port := host.opts.Access.(*C10d).Ports[0]
	tests := []struct {
		name string
		make func(h *Handler)
		want []string
	}{
		{"other parameters", func(h *Handler) { h.opts.Job.MaxRestarts = 3 }, []string{"max restarts is 3 here and 0 in the job"}},
		{"other version", func(h *Handler) { h.opts.Access.(*C10d).Version = "v9" }, []string{"v9", "test"}},
		{"a secret", func(h *Handler) { h.opts.Access.(*C10d).Secret = []byte("s") }, []string{"secret"}},
		{"other run", func(h *Handler) { h.opts.Access.(*C10d).RunID = "walk" }, []string{`"run"`, `"walk"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newTestHandler(t, j, port, "guest")
			tt.make(h)
			got := await(t, "answer", enter(t, h, nil))
			if got.err == nil {
				t.Fatalf("it was let in: %+v", got.round)
			}
			for _, w := range tt.want {
				if !strings.Contains(got.err.Error(), w) {
					t.Errorf("error %q does not name %q", got.err, w)
				}
			}
		})
	}
	select {
	case s := <-host.Stops():
		if s.Round != noRound {
			t.Errorf("the job was stopped for it: %+v", s)
		}
	default:
	}
}

func TestStrangerAtTheEndpoint(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stranger := rdzv.ServeWorkerStore(ln, tcpstore.ServerOptions{})
	defer stranger.Close()
	h := newTestHandler(t, job(1, 2), stranger.Port(), "node")
	got := await(t, "answer", enter(t, h, nil))
	var taken *rdzv.ListenError
	if !errors.As(got.err, &taken) || taken.Port != stranger.Port() || !strings.Contains(got.err.Error(), "torch") {
		t.Errorf("%v", got.err)
	}
}

func TestUnreachable(t *testing.T) {
	j := job(1, 2)
	j.JoinTimeout = 500 * time.Millisecond
	h := newTestHandler(t, j, freeTCPPort(t), "node")
	no := false
	h.opts.Access.(*C10d).IsHost = &no
	got := await(t, "answer", enter(t, h, nil))
	if !errors.Is(got.err, rdzv.ErrConnection) || !errors.Is(got.err, coord.ErrUnavailable) || !strings.Contains(got.err.Error(), "127.0.0.1") {
		t.Errorf("%v", got.err)
	}
}
