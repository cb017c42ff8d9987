package elastic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// Three agents form a round, restart after a failure, and succeed.
func TestHandlersOverSockets(t *testing.T) {
	port := testenv.FreePort(t)
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
		if r := got.round; r.Rank != i || r.WorldSize != 3 || r.Assignment.GlobalBase != 2*i || r.Number != 0 ||
			r.MasterAddr != "127.0.0.1" {
			t.Fatalf("node %d: round %+v", i, r)
		}
	}
	f := rdzv.Failure{Failure: failure.Failure{Host: "node1", GlobalRank: 2, ExitCode: 3}}
	hs[1].Fail(f)
	for _, i := range []int{0, 2} {
		if s := awaitStop(t, "stop", hs[i]); s.Round != 0 {
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
	wantSuccess(t, hs...)
	late := newTestHandler(t, j, port, "late")
	got := await(t, "late joiner", enter(t, late, nil))
	var end *rdzv.EndedError
	if !errors.As(got.err, &end) || end.Outcome.Ending != rdzv.EndSucceeded {
		t.Errorf("late joiner: %v", got.err)
	}
}

// Without its store a node stops its workers and gives up.
func TestHostIsLost(t *testing.T) {
	hs := startJob(t, job(2, 2), 2, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := hs[0].Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	for { // the leader may have sent one before it ended
		s := awaitStop(t, "stop", hs[1])
		if !s.KillBy.IsZero() && time.Until(s.KillBy) < 2*time.Second {
			break
		}
	}
	if got := await(t, "end", enter(t, hs[1], nil)); !errors.Is(got.err, rdzv.ErrConnection) {
		t.Errorf("%+v", got)
	}
}

// A failure after another node has left is not charged.
func TestLeaveIsNoFailure(t *testing.T) {
	hs := startJob(t, job(2, 3), 3, nil)
	hs[2].Leave()
	f := rdzv.Failure{Failure: failure.Failure{Host: "node1", GlobalRank: 2, ExitCode: 1}, Grade: 2}
	hs[1].Fail(f)
	awaitStop(t, "stop", hs[0])
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

// An agent that does not fit the job is refused, and the job goes on.
func TestRefused(t *testing.T) {
	t.Parallel()
	j := job(1, 2)
	j.LastCall = 0
	host := startJob(t, j, 1, nil)[0]
	port := host.opts.Access.(*C10d).Ports[0]
	tests := []struct {
		name string
		make func(h *Handler)
		want []string
	}{
		{
			"other parameters", func(h *Handler) { h.opts.Job.MaxRestarts = 3 },
			[]string{"--max-restarts is 3 on this node and 0 in the job: give the same on all nodes"},
		},
		{"other version", func(h *Handler) { h.opts.Access.(*C10d).Version = "v9" }, []string{"v9", "test"}},
		{"a secret", func(h *Handler) { h.opts.Access.(*C10d).Secret = []byte("s") }, []string{"secret"}},
		{"other run", func(h *Handler) { h.opts.Access.(*C10d).RunID = "walk" }, []string{`"run"`, `"walk"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newTestHandler(t, j, port, "guest")
			tt.make(h)
			got := await(t, "answer", enter(t, h, nil))
			if got.err == nil {
				t.Fatalf("it entered a round: %+v", got.round)
			}
			for _, w := range tt.want {
				if !strings.Contains(got.err.Error(), w) {
					t.Errorf("error %q does not name %q", got.err, w)
				}
			}
		})
	}
	t.Cleanup(func() { // after the last of the tests
		select {
		case s := <-host.Stops():
			if s.Round != rounds.NoRound {
				t.Errorf("a refused agent stopped the job: %+v", s)
			}
		default:
		}
	})
}

// Advice against the loss of the store is not for an agent that another one has replaced.
func TestAdviceIsForLostStores(t *testing.T) {
	h, m := New(Options{Advice: "use another store", StoreAdvice: "start it again"}), rounds.NewMember(rounds.MemberOptions{}, 0)
	m.HandleAnswer(0, rounds.Answer{Kind: rounds.Replace, Note: "another agent has come"})
	for _, tt := range []struct {
		over       *rounds.Ending
		storeStays bool
		want       string
	}{
		{m.Ending(), false, ""},
		{&rounds.Ending{Err: rdzv.ErrConnection}, false, " (use another store)"},
		{&rounds.Ending{Err: rdzv.ErrConnection}, true, " (start it again)"},
	} {
		h.over, h.storeStays = tt.over, tt.storeStays
		if got, want := h.ending().Error(), tt.over.Err.Error()+tt.want; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestNoticesAreLogged checks that the agent logs notices as warnings, and passes on what it waits for.
func TestNoticesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		j := job(2, 3)
		j.JoinTimeout = time.Minute
		waits := []string{}
		h := New(Options{
			Waiting: func(why string) { waits = append(waits, why) },
			Backend: "c10d", RunID: "run", Job: j, Node: rounds.Node{Host: "a", Identity: "a", Hint: 1},
			Access:    &C10d{RunID: "run", SingleNode: true},
			Stores:    WorkerStores{Addr: "127.0.0.1", Ports: machine.Ports{Low: 1, High: 1}, WorkersHost: true},
			KeepAlive: time.Second, Timeout: time.Second, WaitAdvice: "advice",
			Logger: zerolog.New(&log).Level(zerolog.WarnLevel),
		})
		_, err := h.NextRendezvous(t.Context(), rdzv.Member{Role: "r", LocalWorldSize: 1})
		if end, ok := errors.AsType[*rdzv.EndedError](err); !ok || end.Outcome.Ending != rdzv.EndTimeout {
			t.Errorf("got %v", err)
		}
		if err := h.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		want, wantWaits := "", []string{"the job's store has not been reached yet; this node gives up in 1m", ""}
		for _, left := range []string{"55s", "45s", "25s"} {
			wantWaits = append(wantWaits, "1 of at least 2 nodes have joined; the job gives up in "+left)
			want += `{"level":"warn","message":"waiting for the next round: 1 of at least 2 nodes have joined; ` +
				`the job gives up in ` + left + `; advice"}` + "\n"
		}
		if diff := cmp.Diff(want, log.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(wantWaits, waits); diff != "" {
			t.Errorf("waits (-want +got):\n%s", diff)
		}
	})
}

// TestFindWorkerStore checks that an agent that does not reach the worker store reports it, and returns once the round
// is over or the time is up.
func TestFindWorkerStore(t *testing.T) {
	h := New(Options{Job: job(2, 3)})
	h.started = true
	h.m = memberAtWork(0)
	h.m.TakeReport()
	var driving sync.WaitGroup
	driving.Go(func() {
		for {
			select {
			case call := <-h.calls:
				call(0)
			case <-h.driveDone:
				return
			}
		}
	})
	go func() {
		h.stops.C <- rdzv.Stop{Round: 2} // of an earlier round
		h.stops.C <- rdzv.Stop{Round: 3}
	}()
	nowhere := rounds.Offer{Addrs: []string{"127.0.0.1"}, Port: testenv.FreePort(t), Nonce: "00"}
	if addr, err := h.findWorkerStore(t.Context(), 3, nowhere); !errors.Is(err, errRoundOver) {
		t.Errorf("reached %q, %v", addr, err)
	}
	close(h.driveDone)
	driving.Wait()
	report, changed := h.m.TakeReport()
	if u := report.Unreached; u == nil || !strings.Contains(u.Why, "nobody listens there") || !changed {
		t.Errorf("the report has %+v", u)
	}
	h.opts.Job.Rejoin, h.opts.Job.JoinTimeout = 0, 0
	addr, err := h.findWorkerStore(t.Context(), 3, nowhere)
	if !errors.Is(err, rdzv.ErrConnection) || !strings.Contains(err.Error(), "nobody listens there") {
		t.Errorf("reached %q, %v", addr, err)
	}
}
