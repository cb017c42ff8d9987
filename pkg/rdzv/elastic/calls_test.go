package elastic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// newLonelyHandler returns the handler of a job of one node, which nothing outside of the process sees.
func newLonelyHandler() *Handler {
	j := job(1, 1)
	j.LastCall = 0
	return New(Options{
		Backend: "c10d", RunID: "run", Job: j, Node: rounds.Node{Host: "a", Identity: "a", Hint: -1},
		Access: &C10d{RunID: "run", Version: "test", TTL: 2 * time.Second, SingleNode: true, Logger: zerolog.Nop()},
		Stores: WorkerStores{Addr: "127.0.0.1", Fixed: true}, KeepAlive: 200 * time.Millisecond,
		Timeout: time.Second, CloseTimeout: 10 * time.Second,
	})
}

// kindsOf lists the kinds that an error wraps.
func kindsOf(err error) (kinds []error) {
	for _, kind := range []error{
		rdzv.ErrClosed, rdzv.ErrTimeout, rdzv.ErrConnection, rdzv.ErrState, rdzv.ErrGracefulExit, rdzv.ErrRefused,
	} {
		if errors.Is(err, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// All methods may be called at once. Whatever the order, every call returns, an error has exactly one kind, and after a
// successful SetClosed the handler says that the run is closed.
func TestCallsAtOnce(t *testing.T) {
	test := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		h := newLonelyHandler()
		ctx, cancel := context.WithTimeout(test, 20*time.Second)
		defer cancel()
		var mu sync.Mutex
		var problems []string
		check := func(what string, err error) error {
			mu.Lock()
			defer mu.Unlock()
			if kinds := kindsOf(err); err != nil && len(kinds) != 1 {
				problems = append(problems, fmt.Sprintf("%s: %v has the kinds %v", what, err, kinds))
			}
			return err
		}
		calls := map[string]func(){
			"Leave":           h.Leave,
			"Fail":            func() { h.Fail(rdzv.Failure{Failure: failure.Failure{ExitCode: 1}}) },
			"Stopped":         h.Stopped,
			"NumNodesWaiting": func() { h.NumNodesWaiting() },
			"Shutdown":        func() { _ = check("Shutdown", h.Shutdown(ctx)) },
			"SetClosed": func() {
				err := check("SetClosed", h.SetClosed(ctx, ""))
				if closed, _ := h.IsClosed(ctx); err == nil && !closed {
					t.Error("IsClosed is false after SetClosed")
				}
			},
		}
		names := rapid.SliceOfN(rapid.SampledFrom(slices.Sorted(maps.Keys(calls))), 1, 8).Draw(t, "calls")
		succeeds := rapid.Bool().Draw(t, "succeeds")
		over := make(chan struct{})
		var agent, others sync.WaitGroup
		agent.Go(func() {
			for {
				_, err := h.NextRendezvous(ctx, rdzv.Member{Role: "r", LocalWorldSize: 1})
				if check("NextRendezvous", err) != nil {
					return
				}
				if succeeds {
					if stop, err := h.Succeed(ctx, rdzv.NoTimeout); check("Succeed", err) != nil || stop == nil {
						return
					}
					continue
				}
				select {
				case <-h.Stops():
				case <-over:
					return
				}
			}
		})
		for _, name := range names {
			others.Go(calls[name])
		}
		others.Wait()
		_ = check("Shutdown", h.Shutdown(ctx))
		close(over)
		agent.Wait()
		if ctx.Err() != nil {
			t.Error("a call has not returned in time")
		}
		for _, p := range problems {
			t.Error(p)
		}
	})
}

// What a node reports before it has a session goes into its first report.
func TestEarlyCalls(t *testing.T) {
	h := newLonelyHandler()
	h.Leave()
	h.Fail(rdzv.Failure{Failure: failure.Failure{ExitCode: 7}})
	if closed, err := h.IsClosed(t.Context()); closed || err != nil {
		t.Errorf("IsClosed: %v, %v", closed, err)
	}
	done := enter(t, h, nil)
	for r := (rounds.Report{}); r.Phase != rounds.Ready; {
		reported := make(chan rounds.Report, 1) // the call may come after the wait below, and must not block the agent
		go h.call(func(time.Duration) { reported <- h.m.CurrentReport() })
		select {
		case r = <-reported:
		case <-time.After(time.Millisecond): // the session is not open yet
		}
		if r.Phase == rounds.Ready && (!r.Leaving || r.Failure == nil || r.Failure.ExitCode != 7) {
			t.Errorf("the first report: %+v", r)
		}
	}
	if err := h.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if got := await(t, "the end", done); !errors.Is(got.err, rdzv.ErrClosed) {
		t.Errorf("NextRendezvous: %+v", got)
	}
	if err := h.SetClosed(t.Context(), ""); err == nil {
		t.Error("SetClosed after Shutdown returned nil")
	}
}

// blockedAccess is the access to a store that is never reached.
type blockedAccess struct {
	Access
	opening chan struct{}
}

func (a *blockedAccess) Open(ctx context.Context) (coord.Store, error) {
	a.opening <- struct{}{}
	<-ctx.Done()
	return nil, coord.ErrUnavailable
}

// A node that has not joined ends at once when the run is closed on it. Only a job of one node is then closed.
func TestSetClosedBeforeJoining(t *testing.T) {
	checkEnd := func(h *Handler, err error) {
		t.Helper()
		if end, ok := errors.AsType[*rdzv.EndedError](err); !ok || end.Outcome.Ending != rdzv.EndClosed {
			t.Errorf("NextRendezvous: %v", err)
		}
		if closed, err := h.IsClosed(t.Context()); !closed || err != nil {
			t.Errorf("IsClosed: %v, %v", closed, err)
		}
		if err := h.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
	alone := newLonelyHandler()
	if err := alone.SetClosed(t.Context(), ""); err != nil {
		t.Errorf("one node: %v", err)
	}
	checkEnd(alone, await(t, "the end", enter(t, alone, nil)).err)

	for _, opening := range []bool{false, true} {
		h := newLonelyHandler()
		h.opts.Job.Max = 2
		access := &blockedAccess{Access: h.opts.Access, opening: make(chan struct{})}
		h.opts.Access = access
		var end <-chan joined
		if opening {
			end = enter(t, h, nil)
			await(t, "the first session", access.opening)
		}
		if err := h.SetClosed(t.Context(), "ann@desk"); !errors.Is(err, ErrNotJoined) || len(kindsOf(err)) != 1 {
			t.Errorf("SetClosed: %v", err)
		}
		if !opening {
			end = enter(t, h, nil)
		}
		checkEnd(h, await(t, "the end", end).err)
	}
}

// SetClosed returns when the leader has ended the run, while this node's workers still stop; every node knows then.
func TestSetClosed(t *testing.T) {
	hs := startJob(t, job(2, 2), 2, nil)
	if err := hs[1].SetClosed(t.Context(), "ann@desk"); err != nil {
		t.Fatal(err)
	}
	for i, h := range hs {
		if s := awaitStop(t, "stop", h); !s.Final {
			t.Errorf("node %d: %+v", i, s)
		}
		if closed, err := h.IsClosed(t.Context()); !closed || err != nil {
			t.Errorf("node %d: IsClosed is %v, %v, though its workers were told to stop", i, closed, err)
		}
		if o := h.Outcome(); o == nil || o.ClosedBy != "ann@desk" || o.Text != "closed by ann@desk" {
			t.Errorf("node %d: %+v", i, o)
		}
		if err := h.SetClosed(t.Context(), "bob@desk"); err != nil {
			t.Errorf("node %d, again: %v", i, err)
		}
	}
	for _, h := range hs {
		got := await(t, "end", enter(t, h, nil))
		if end, ok := errors.AsType[*rdzv.EndedError](got.err); !ok || end.Outcome.Ending != rdzv.EndClosed {
			t.Errorf("NextRendezvous: %+v", got)
		}
	}
}

// Each error of the contract has exactly one kind.
func TestErrorKinds(t *testing.T) {
	for _, tt := range []struct{ err, want error }{
		{&rounds.RefusedError{}, rdzv.ErrRefused},
		{&rounds.FinishedError{}, rdzv.ErrClosed},
		{&rdzv.EndedError{Outcome: rdzv.Outcome{Ending: rdzv.EndSucceeded}}, rdzv.ErrGracefulExit},
		{&rdzv.EndedError{Outcome: rdzv.Outcome{Ending: rdzv.EndFailed}}, rdzv.ErrClosed},
		{&rdzv.EndedError{Outcome: rdzv.Outcome{Ending: rdzv.EndClosed}}, rdzv.ErrClosed},
		{&rdzv.EndedError{Outcome: rdzv.Outcome{Ending: rdzv.EndTimeout}}, rdzv.ErrTimeout},
		{connectionError(errors.New("no route")), rdzv.ErrConnection},
		{&PortsTakenError{}, rdzv.ErrConnection},
		{errDeparted, rdzv.ErrClosed},
		{ErrUnconfirmed, rdzv.ErrTimeout},
	} {
		if kinds := kindsOf(tt.err); len(kinds) != 1 || !errors.Is(kinds[0], tt.want) {
			t.Errorf("%T %v has the kinds %v, want %v", tt.err, tt.err, kinds, tt.want)
		}
	}
}
