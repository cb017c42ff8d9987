package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// journal records the calls of the agent to its fakes, in order.
type journal struct {
	mu      sync.Mutex
	entries []string
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, fmt.Sprintf(format, args...))
}

func (j *journal) list() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}

// fakeRendezvous answers each call with the next of its rounds. It charges the failures that it
// receives, and ends the job when no restart is left.
type fakeRendezvous struct {
	*journal

	mu          sync.Mutex
	nodes       int // world size of its rounds
	rank        int
	maxRestarts int
	restarts    int
	calls       int
	err         error // of the call numbered failAt
	failAt      int
	outcome     *rdzv.Outcome // in place of the verdict on a member's failure
	succeed     func(call int) (*rdzv.Stop, error)
	barrier     func(ctx context.Context, limit time.Duration) (*rdzv.Stop, error) // Succeed, in place of succeed
	succeeded   int                                                                // calls of Succeed
	stops       chan rdzv.Stop
	seen        []rdzv.Member
	sent        []rdzv.Failure
	used        *goodput.Goodput
}

func newFakeRendezvous(j *journal, maxRestarts int) *fakeRendezvous {
	return &fakeRendezvous{journal: j, nodes: 1, maxRestarts: maxRestarts, failAt: -1, stops: make(chan rdzv.Stop, 2)}
}

func (f *fakeRendezvous) Backend() string { return "fake" }
func (f *fakeRendezvous) RunID() string   { return "run-1" }

func (f *fakeRendezvous) NextRendezvous(ctx context.Context, self rdzv.Member) (*rdzv.Round, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note("rendezvous")
	f.seen = append(f.seen, self)
	if f.calls == f.failAt {
		return nil, f.err
	}
	switch {
	case self.Failure == nil:
	case f.outcome != nil:
		return nil, fmt.Errorf("join: %w", &rdzv.EndedError{Outcome: *f.outcome})
	case f.restarts == f.maxRestarts:
		return nil, &rdzv.EndedError{Outcome: rdzv.Outcome{Ending: rdzv.EndFailed, Cause: self.Failure, Restarts: f.restarts}}
	default:
		f.restarts++
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	f.calls++
	return &rdzv.Round{
		Number: f.calls - 1, Rank: f.rank, WorldSize: f.nodes, Restarts: f.restarts,
		Assignment: rdzv.Assign(slices.Repeat([]rdzv.Member{self}, f.nodes))[f.rank],
		MasterAddr: "127.0.0.1", MasterPort: 1234, UseAgentStore: true,
	}, nil
}

func (f *fakeRendezvous) Stops() <-chan rdzv.Stop { return f.stops }

func (f *fakeRendezvous) Fail(failure rdzv.Failure) {
	f.note("fail %d", failure.GlobalRank)
	f.sent = append(f.sent, failure)
}

func (f *fakeRendezvous) Leave() {
	f.note("leave")
}

func (f *fakeRendezvous) Quiet(q *rdzv.Quiet) {
	if q == nil {
		f.note("quiet no more")
		return
	}
	f.note("quiet for %v", q.For)
}

func (f *fakeRendezvous) Started() {}

func (f *fakeRendezvous) Stepped(rdzv.Steps) {}

func (f *fakeRendezvous) Used() (*goodput.Goodput, bool) { return f.used, f.used != nil }

func (f *fakeRendezvous) Preempt(p rdzv.Preemption) { f.note("preempt: %s", p.By) }

func (f *fakeRendezvous) Stopped() {}

func (f *fakeRendezvous) Succeed(ctx context.Context, limit time.Duration) (*rdzv.Stop, error) {
	f.note("succeed")
	if f.barrier != nil {
		return f.barrier(ctx, limit)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	f.succeeded++
	if f.succeed == nil {
		return nil, nil
	}
	return f.succeed(f.succeeded)
}

// failElsewhere charges a failure of another node and stops the round because of it.
func (f *fakeRendezvous) failElsewhere(round int) {
	f.mu.Lock()
	f.restarts++
	f.mu.Unlock()
	f.stops <- rdzv.Stop{Round: round, Why: "a worker of node7 failed"}
}

// endAt makes the call with this number, and all later ones, report that the job has ended.
func (f *fakeRendezvous) endAt(call int, o rdzv.Outcome) {
	f.failAt, f.err = call, fmt.Errorf("join: %w", &rdzv.EndedError{Outcome: o})
}
