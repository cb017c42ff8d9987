package agent

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/events"
)

// metric is the full name of a metric of this role (seed 002).
func (a *Agent) metric(name string) string { return "workers." + a.opts.Spec.Role + "." + name }

// remaining is how many restarts are left, as far as a node can tell: with a restart window it may be more.
func (a *Agent) remaining() int { return max(0, a.opts.Spec.MaxRestarts-a.restarts) }

// prof measures a step as seed 002 does. One that ended with the job's result has neither failed nor done its work.
func (a *Agent) prof(step string, f func() error) error {
	begun := time.Now()
	err := f()
	if _, ended := finished(err); !ended {
		a.metrics.Ran(step, time.Since(begun), err)
	}
	return err
}

// putState records the group's state whenever the agent looks at it.
func (a *Agent) putState() {
	a.metrics.Put(a.metric("remaining_restarts"), float64(a.remaining()))
	a.metrics.Put(a.metric(a.state().metric()), 1)
}

// recordMetrics puts what seed 002 puts once a run.
func (a *Agent) recordMetrics(r RunResult) {
	failed, retried := r.IsFailed(), r.Restarts > 0
	a.metrics.Put(a.metric("flakiness"), float64(flakiness(failed, a.remaining(), a.opts.Spec.MaxRestarts)))
	a.metrics.Put(a.metric("run_total"), 1)
	for _, m := range []struct {
		name string
		is   bool
	}{
		{"run_success_with_retries", !failed && retried},
		{"run_success_no_retries", !failed && !retried},
		{"run_failed_with_retries", failed && retried},
		{"run_failed_no_retries", failed && !retried},
	} {
		value := 0.0
		if m.is {
			value = 1
		}
		a.metrics.Put(a.metric(m.name), value)
	}
}

// flakiness is seed 002's measure in percent: 0 for a run without restarts, 100
// for one that failed.
func flakiness(failed bool, remaining, maxRestarts int) int {
	if failed {
		return 100
	}
	return int(100 - 100*float64(remaining+1)/float64(maxRestarts+1))
}

// status is an event of the agent itself; callers fill in the rest.
func (a *Agent) status(state string) events.Status {
	return events.Status{
		State: state, Source: events.SourceAgent, Time: time.Now(),
		RunID: a.opts.Rendezvous.RunID(), Role: a.opts.Spec.Role, Hostname: a.hostname,
		Backend: a.opts.Rendezvous.Backend(), GroupRank: a.group.GroupRank,
		GroupWorldSize: a.group.GroupWorldSize, AgentRestarts: a.restarts,
		TotalRunTime: time.Since(a.started), EntryPoint: a.opts.Spec.EntrypointName(),
	}
}

// emitAgent tells how the run as a whole ended (seed 002, get_event_succeeded and
// get_event_failed).
func (a *Agent) emitAgent(state string, err error) {
	s := a.status(state)
	if err != nil {
		s.RawError = err.Error()
	}
	a.sink.Emit(s)
}

// emitStep tells how long a step took.
func (a *Agent) emitStep(state string, took time.Duration) {
	s := a.status(state)
	s.Duration = max(took, time.Millisecond) // a step that was taken has a duration
	a.sink.Emit(s)
}

// emitWorker tells the state of one worker; f is its failure, if it failed.
func (a *Agent) emitWorker(state string, w Worker, f *Failure) {
	s := a.status(state)
	s.Source = events.SourceWorker
	s.Worker = &events.WorkerStatus{
		ID: w.ID(), LocalRank: w.LocalRank, GlobalRank: w.GlobalRank,
		RoleRank: w.RoleRank, RoleWorldSize: w.RoleWorldSize,
	}
	if f != nil {
		code := f.Exit.PythonCode()
		s.Worker.ExitCode = &code
		if f.Error != nil {
			s.RawError = f.Error.Raw
		}
	}
	a.sink.Emit(s)
}

// emitResult tells how each worker of the last round ended, if this node was in one. One that did not fail was
// stopped by the agent (seed 002: TERMINATED), unless all of this node's exited with 0.
func (a *Agent) emitResult(r RunResult) {
	if a.round == nil {
		return
	}
	for _, w := range a.group.Workers {
		f, failed := r.Failures[w.GlobalRank]
		switch {
		case failed:
			a.emitWorker(Failed.String(), w, &f)
		case a.done:
			a.emitWorker(Succeeded.String(), w, nil)
		default:
			a.emitWorker("TERMINATED", w, nil)
		}
	}
}
