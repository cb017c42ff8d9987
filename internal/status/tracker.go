package status

import (
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// Tracker is an events.Sink that derives an agent's Snapshot from its events. Its zero value is ready.
type Tracker struct {
	metrics events.Metrics
	mu      sync.Mutex
	s       Snapshot
}

// Emit applies an event. It does not block.
func (b *Tracker) Emit(r events.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.metrics.Emit(r)
	if r.Kind.Logged() {
		b.s.apply(r)
	}
}

// Waits records what a waiting agent waits for, in words for people; empty if that is not known. at is when the text
// was written. Waits does nothing in another state than Waiting.
func (b *Tracker) Waits(at time.Time, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.s.State == Waiting {
		b.s.setWhy(at, why)
	}
}

// StoreChanged records who keeps the job's store.
func (b *Tracker) StoreChanged(s *Store) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s.Store = s
}

// Snapshot returns the state after the events so far.
func (b *Tracker) Snapshot() Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.s.clone()
	s.Schema, s.Agent = Schema, b.metrics.All()
	if s.State == "" {
		s.State = Starting
	}
	if s.Workers == nil {
		s.Workers = []Worker{}
	}
	if s.GPUs == nil {
		s.GPUs = []GPU{}
	}
	return s
}

// apply applies an event.
func (s *Snapshot) apply(r events.Event) {
	if r.Round != nil {
		s.Round, s.NodeRank = r.Round, r.NodeRank
	}
	switch r.Kind {
	case events.KindLauncherStarted:
		s.RunID, s.Host, s.Started = r.RunID, r.Host, report.Time{Time: r.Time}
		s.Name, s.Version, s.Backend, s.PID, s.LocalWorldSize = r.Name, r.Version, r.Backend, r.PID, r.LocalWorldSize
		s.Role = r.Group.Role
		s.enter(Starting, r, "")
	case events.KindWaiting:
		s.enter(Waiting, r, "")
	case events.KindRound:
		s.begin(r)
	case events.KindWorkerStarted:
		s.enter(Running, r, "")
		if w := s.worker(r); w != nil {
			*w = Worker{
				Rank: *r.Rank, LocalRank: *r.LocalRank, PID: r.PID, State: WorkerRunning,
				Since: report.Time{Time: r.Time},
			}
		}
	case events.KindWorkerEnded:
		s.end(r)
	case events.KindHang:
		s.Hang = &Hang{Time: report.Time{Time: r.Time}, Ranks: r.Ranks, Summary: r.Summary}
	case events.KindHangOver:
		s.Hang = nil
	case events.KindPreempted:
		s.enter(Saving, r, "")
	case events.KindStop:
		s.enter(Stopping, r, r.Why)
	case events.KindFailure:
		s.fail(r)
	case events.KindSucceeded:
		s.enter(Finished, r, "")
	case events.KindEnd:
		s.enter(Ended, r, r.Reason)
	}
}

// enter changes the state. Since stays the same if s is in that state already.
func (s *Snapshot) enter(state State, r events.Event, why string) {
	if s.State != state {
		s.State, s.Since = state, report.Time{Time: r.Time}
	}
	s.setWhy(r.Time, why)
}

// setWhy sets why the agent is in its state. The text of a wait may name a remaining time, so WhyTime says when it was
// written.
func (s *Snapshot) setWhy(at time.Time, why string) {
	s.Why, s.WhyTime = why, nil
	if why != "" && s.State == Waiting {
		s.WhyTime = &report.Time{Time: at}
	}
}

// begin applies the start of a round.
func (s *Snapshot) begin(r events.Event) {
	s.enter(Starting, r, "")
	s.Hang = nil
	s.Nodes, s.WorldSize = r.Nodes, r.WorldSize
	if r.Restarts != nil && r.MaxRestarts != nil {
		s.Restarts, s.MaxRestarts = *r.Restarts, *r.MaxRestarts
	}
	s.Rounds++
	if r.Verdict == events.VerdictMembership {
		s.MembershipChanges++
	}
	s.Workers = make([]Worker, s.LocalWorldSize)
	for i := range s.Workers {
		s.Workers[i] = Worker{Rank: -1, LocalRank: i, State: WorkerStarting, Since: report.Time{Time: r.Time}}
	}
}

// worker returns the worker that r belongs to, or nil.
func (s *Snapshot) worker(r events.Event) *Worker {
	if r.LocalRank == nil || r.Rank == nil || *r.LocalRank < 0 || *r.LocalRank >= len(s.Workers) {
		return nil
	}
	return &s.Workers[*r.LocalRank]
}

// end applies the end of a worker.
func (s *Snapshot) end(r events.Event) {
	w := s.worker(r)
	if w == nil {
		return
	}
	w.Rank, w.PID, w.Since, w.ExitCode, w.Signal = *r.Rank, r.PID, report.Time{Time: r.Time}, r.ExitCode, r.Signal
	switch {
	case r.Stopped:
		w.State = WorkerStopped
	case r.ExitCode != nil && *r.ExitCode == 0:
		w.State = WorkerSucceeded
	default:
		w.State = WorkerFailed
	}
}

// fail counts a failure. It keeps the first failure of a round, because the others are often its consequences.
func (s *Snapshot) fail(r events.Event) {
	s.Failures++
	if r.Round == nil || r.Rank == nil || s.LastFailure != nil && s.LastFailure.Round == *r.Round {
		return
	}
	s.LastFailure = &Failure{
		Time: report.Time{Time: r.Time}, Round: *r.Round, Rank: *r.Rank, Cause: r.Cause,
		Summary: r.Summary,
	}
}
