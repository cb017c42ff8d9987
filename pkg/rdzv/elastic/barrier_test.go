package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// verdict is what Succeed returned.
type verdict struct {
	stop *rdzv.Stop
	err  error
}

// succeed calls Succeed and returns where its result will arrive.
func succeed(t *testing.T, h *Handler, barrier time.Duration) <-chan verdict {
	t.Helper()
	out := make(chan verdict, 1)
	go func() {
		stop, err := h.Succeed(t.Context(), barrier)
		out <- verdict{stop, err}
	}()
	return out
}

// wantSuccess checks that the job succeeds for agents whose workers have all exited with 0.
func wantSuccess(t *testing.T, hs ...*Handler) {
	t.Helper()
	ends := make([]<-chan verdict, len(hs))
	for i, h := range hs {
		ends[i] = succeed(t, h, rdzv.NoTimeout)
	}
	for i, end := range ends {
		if got := await(t, "success", end); got.stop != nil || got.err != nil {
			t.Errorf("agent %d: %+v", i, got)
		}
	}
}

// A node leaves the exit barrier at its deadline, and the others succeed without it.
func TestSucceedDeparts(t *testing.T) {
	hs := startJob(t, job(3, 3), 3, nil)
	if got := await(t, "departure", succeed(t, hs[2], 0)); got.stop != nil || !errors.Is(got.err, rdzv.ErrTimeout) {
		t.Errorf("the node that leaves: %+v", got)
	}
	if _, err := hs[2].NextRendezvous(t.Context(), rdzv.Member{LocalWorldSize: 1}); !errors.Is(err, rdzv.ErrClosed) {
		t.Errorf("NextRendezvous after the departure: %v", err)
	}
	wantSuccess(t, hs[:2]...)
}

// A node that waits for the leader's word to leave does not wait when its context ends.
func TestSucceedIsInterrupted(t *testing.T) {
	_, guest, p := growBehindProxy(t)
	p.holdBack()
	ctx, interrupt := context.WithCancelCause(t.Context())
	ended := make(chan verdict, 1)
	go func() {
		stop, err := guest.Succeed(ctx, 0)
		ended <- verdict{stop, err}
	}()
	for asked := make(chan bool, 1); ; {
		guest.call(func(time.Duration) { asked <- guest.m.IsDeparting() })
		if await(t, "the member", asked) {
			break
		}
	}
	cause := errors.New("a signal")
	interrupt(cause)
	if got := await(t, "the end", ended); got.stop != nil || !errors.Is(got.err, cause) {
		t.Errorf("%+v", got)
	}
}

// After a departure a failure ends the job on the nodes that are left.
func TestFailureAfterDeparture(t *testing.T) {
	j := job(3, 3)
	j.MaxRestarts = 3
	hs := startJob(t, j, 3, nil)
	if got := await(t, "departure", succeed(t, hs[2], 0)); got.stop != nil || !errors.Is(got.err, rdzv.ErrTimeout) {
		t.Errorf("the node that leaves: %+v", got)
	}
	waiting := succeed(t, hs[0], time.Minute)
	f := rdzv.Failure{}
	f.Host, f.ExitCode = "node1", 3
	hs[1].Fail(f)
	if got := await(t, "stop", waiting); got.stop == nil || got.err != nil {
		t.Fatalf("the node at the exit barrier: %+v", got)
	}
	for i, end := range []<-chan joined{enter(t, hs[0], nil), enter(t, hs[1], &f)} {
		got := await(t, "end", end)
		ended, ok := errors.AsType[*rdzv.EndedError](got.err)
		if !ok || ended.Outcome.Cause == nil || ended.Outcome.Text != "not restarted: node2 (node rank 2) had finished and left" {
			t.Errorf("node %d: %+v", i, got)
		}
	}
}

// The host of the store stays until the job has ended, or for the TTL of sessions if it may leave.
func TestHostIsNeeded(t *testing.T) {
	j := job(2, 2)
	j.TTL = 3 * time.Second // it must not pass before the second call
	hs := startJob(t, j, 2, nil)
	got := await(t, "deadline", succeed(t, hs[0], 0))
	if needed, ok := errors.AsType[*rdzv.NeededError](got.err); !ok || needed.For != 0 {
		t.Fatalf("the host: %+v", got)
	}
	for hs[0].opts.Access.(*C10d).StillRunning() == "" { // until the leader knows that this node has finished
		runtime.Gosched()
	}
	hs[0].opts.LeaveStores = true
	got = await(t, "deadline", succeed(t, hs[0], 0))
	needed, ok := errors.AsType[*rdzv.NeededError](got.err)
	if !ok || needed.For <= 0 || needed.For > j.TTL || needed.Others != "node1" {
		t.Fatalf("a host that may leave: %+v", got)
	}
	got = await(t, "departure", succeed(t, hs[0], needed.For))
	if got.stop != nil || !errors.Is(got.err, rdzv.ErrTimeout) {
		t.Errorf("after the TTL: %+v", got)
	}
}

// At the exit barrier a node whose session is lost joins again and learns the result.
func TestSessionLostAtBarrier(t *testing.T) {
	host, guest, _ := growBehindProxy(t)
	waiting := succeed(t, guest, time.Minute)
	awaitDone(t, host, 1)
	endSession(t, host, guest)
	wantSuccess(t, host)
	if got := await(t, "success", waiting); got.stop != nil || got.err != nil {
		t.Errorf("guest: %+v", got)
	}
}

// awaitDone waits until the leader of host's store has n reports of nodes that are done.
func awaitDone(t *testing.T, host *Handler, n int) {
	t.Helper()
	store := localStore(t, host.opts.Access.(*C10d).hosted().server)
	err := Observe(t.Context(), store, "run", func(Snapshot) error {
		agents, err := listKeys(t.Context(), store, "run/"+rounds.PrefixAgent)
		if err != nil {
			return err
		}
		done := 0
		for _, e := range agents {
			var r rounds.Report
			if json.Unmarshal(e.Value, &r) == nil && r.Phase == rounds.Done {
				done++
			}
		}
		if done < n {
			return nil
		}
		return errListed
	})
	if !errors.Is(err, errListed) {
		t.Fatal(err)
	}
}

// At the exit barrier a lost store does not keep a node from leaving at its deadline.
func TestStoreLostAtBarrier(t *testing.T) {
	hs := startJob(t, job(2, 2), 2, nil)
	hs[1].opts.CloseTimeout = 100 * time.Millisecond
	waiting := succeed(t, hs[1], 2*time.Second) // it is there until the other has gone
	awaitDone(t, hs[0], 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := hs[0].Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	// The leader may just have noticed that its own node has gone, and ordered the others to run again.
	got := await(t, "the end", waiting)
	if got.err != nil && !errors.Is(got.err, rdzv.ErrConnection) && !errors.Is(got.err, rdzv.ErrTimeout) {
		t.Errorf("%+v", got)
	}
}

// TestHostEndedMeanwhile loses the agent that hosts the store while a node waits at the exit barrier. The node waits
// for the keep-alive time, not for the exit barrier's time-out or the join timeout.
func TestHostEndedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		lose func(t *testing.T, host, guest *Handler, p *proxy)
	}{
		{"the host is killed", func(_ *testing.T, _, _ *Handler, p *proxy) { p.reset() }},
		{"the session has ended before", func(t *testing.T, host, guest *Handler, _ *proxy) {
			t.Helper()
			endSession(t, host, guest)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			j := job(1, 2)
			j.TTL = 2 * time.Second // as the store's
			host, guest, p := growJobBehindProxy(t, j)
			waiting := succeed(t, guest, time.Hour)
			awaitDone(t, host, 1)
			began := time.Now()
			_ = p.ln.Close() // nobody listens
			tt.lose(t, host, guest, p)
			if got := await(t, "the end", waiting); got.stop != nil || !errors.Is(got.err, rdzv.ErrTimeout) {
				t.Errorf("%+v", got)
			}
			if took := time.Since(began); took < j.TTL {
				t.Errorf("the node has waited only %v for its host", took)
			}
		})
	}
}

// TestBarrierDeadlineWithoutSession ends a node's session at the exit barrier, where it then reaches no store. The exit
// barrier's time-out counts all the same.
func TestBarrierDeadlineWithoutSession(t *testing.T) {
	t.Parallel()
	host, guest, p := growBehindProxy(t)
	waiting := succeed(t, guest, 3*time.Second) // the store is silent by then
	awaitDone(t, host, 1)
	p.mu.Lock()
	p.refuse = true
	p.mu.Unlock()
	endSession(t, host, guest)
	if got := await(t, "the end", waiting); got.stop != nil || !errors.Is(got.err, rdzv.ErrTimeout) {
		t.Errorf("%+v", got)
	}
}
