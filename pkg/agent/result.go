package agent

import (
	"maps"
	"slices"

	"github.com/elasticrun/elasticrun/pkg/evidence"
)

// RunResult is what a run ended with (seed 002): all-or-nothing, so it is
// Succeeded if and only if every worker of the job exited with 0. Return values, which
// seed 002 has for workers that are functions, do not exist for commands.
type RunResult struct {
	State WorkerState
	// Failures maps global ranks to this node's workers that failed in the last round it was in. Those that the agent
	// stopped are among them only if they had shown an error of their own before.
	Failures map[int]Failure
	// Cause is the failure that ended the job, which may be another node's and is the same on all; nil where the
	// rendezvous does not tell it.
	Cause *Failure
	// Others are the likeliest failures of other nodes beside the cause, as far as the rendezvous tells them.
	Others []Failure
	// Restarts counts the restarts of the job that were charged.
	Restarts int
	// NothingStarted is one line that says why no worker was ever started on this node; empty where one was.
	NothingStarted string
}

// IsFailed reports whether the run failed.
func (r RunResult) IsFailed() bool { return r.State == Failed }

// RootCause returns the failure that began it all; false where none is known.
func (r RunResult) RootCause() (Failure, bool) {
	all := r.ordered()
	if len(all) == 0 {
		return Failure{}, false
	}
	return all[0], true
}

// Note is one line of what to think of the root cause; empty for nothing.
func (r RunResult) Note() string {
	if r.NothingStarted != "" && r.IsFailed() {
		return r.NothingStarted
	}
	if root, ok := r.RootCause(); ok && root.Kind() == evidence.PeerLost {
		return "no worker shows a fault of its own: the first that lost its peer is named; look for a hang or a network fault"
	}
	return ""
}

// ordered returns the failures, here and elsewhere, the root cause first; then by the evidence, without those that are failures only as root causes.
func (r RunResult) ordered() []Failure {
	all := r.inOrder()
	if len(all) == 0 {
		return nil
	}
	return append(all[:1], slices.DeleteFunc(all[1:], Failure.onlyAsCause)...)
}

func (r RunResult) inOrder() []Failure {
	all := slices.Collect(maps.Values(r.Failures))
	for _, f := range r.Others {
		if !slices.ContainsFunc(all, f.same) { // of this node's own more is known
			all = append(all, f)
		}
	}
	slices.SortFunc(all, Failure.compare)
	if r.Cause == nil {
		return accused(all)
	}
	all = slices.DeleteFunc(all, r.Cause.same)
	return slices.Insert(all, 0, *r.Cause)
}

// accused puts the root cause first among failures that stand in their order: if the likeliest has only waited for a peer in vain, that is one who was
// absent, where there is one.
func accused(all []Failure) []Failure {
	if len(all) == 0 || !all[0].waited() {
		return all
	}
	absent := slices.IndexFunc(all, func(f Failure) bool { return f.Kind() == evidence.Absent })
	if absent < 0 {
		return all
	}
	root := all[absent]
	return slices.Insert(slices.Delete(all, absent, absent+1), 0, root)
}

// ownFailures are those of this node in the round that is over, the likeliest cause first. Where all were stopped because of another node, only that one
// knows whether a worker of this one was to blame for what it did not do.
func (a *Agent) ownFailures() []Failure {
	own := RunResult{Failures: a.failures}.ordered()
	if len(own) > 0 && byThemselves(a.failures) == nil && own[0].onlyAsCause() {
		return own[1:]
	}
	return own
}
