package agent

import (
	"cmp"
	"maps"
	"slices"
)

// RunResult is what a run ended with (seed 002): all-or-nothing, so it is
// Succeeded if and only if every worker of the job exited with 0. Return values, which
// seed 002 has for workers that are functions, do not exist for commands.
type RunResult struct {
	State WorkerState
	// Failures maps global ranks to this node's workers that failed in the last round it was in. Those that the
	// agent stopped are not among them.
	Failures map[int]Failure
	// Cause is the failure that ended the job, which may be another node's and is the same on all; nil where the
	// rendezvous does not tell it.
	Cause *Failure
	// Restarts counts the restarts of the job that were charged.
	Restarts int
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

// ordered returns the failures, the root cause first; then what shows signs of
// its own fault before what only shows that a peer went away, then by time.
func (r RunResult) ordered() []Failure {
	all := slices.SortedFunc(maps.Values(r.Failures), func(a, b Failure) int {
		return cmp.Or(
			cmp.Compare(a.suspicion(), b.suspicion()),
			a.Time.Compare(b.Time),
			cmp.Compare(a.GlobalRank, b.GlobalRank),
		)
	})
	if r.Cause == nil {
		return all
	}
	all = slices.DeleteFunc(all, r.Cause.same)
	return slices.Insert(all, 0, *r.Cause)
}
