package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// RunResult is what a run ended with, like RunResult of torch 2.14 (torch/distributed/elastic/agent/server/api.py). It
// is all or nothing: State is Succeeded if every worker of the job exited with 0, or this node's did and it no longer
// waits for the others. Workers are commands, so there are no return values.
type RunResult struct {
	State WorkerState
	// Failures maps global ranks to this node's workers that failed in the last round that included this node. A worker
	// that the agent stopped is among them only if it had shown an error of its own before.
	Failures map[int]failure.Failure
	// Cause is the failure that ended the job. It is the same on all nodes, and may be another node's. It is nil if the
	// rendezvous does not report it.
	Cause *failure.Failure
	// Others are the likeliest failures of other nodes besides the cause, as far as the rendezvous reports them.
	Others []failure.Failure
	// Restarts counts the charged restarts of the job.
	Restarts int
	// OthersUnknown says that this node has succeeded and ended before it knew how the other nodes end: it has left the
	// exit barrier, or has lost the others there.
	OthersUnknown bool
	// Rule is the rule of the job's policy that has ended it, and RuleText says so for people; both are empty if none has.
	Rule     rdzv.Rule
	RuleText string
	// Preempted says, with an error of Run, that the job was preempted: this node has asked for that, or was asked to let
	// its workers save.
	Preempted bool
	// ClosedBy says for people who has closed the run, such as user@host; empty if it was not closed or that is unknown.
	ClosedBy string
	// Used is how all workers of the job have used their time, the same on all nodes; nil if this node does not know how
	// the job has ended.
	Used *goodput.Goodput
	// NothingStarted is one line that says why no worker was started on this node; empty if one was.
	NothingStarted string
	// StoreRefusal is why a store of this node refused a connection, which a worker may have made. The agent leaves it to
	// its caller; nil means that no store refused one.
	StoreRefusal error
}

// IsFailed reports whether the run failed.
func (r RunResult) IsFailed() bool { return r.State == Failed }

// RootCause returns the failure that caused all others; false if none is known.
func (r RunResult) RootCause() (failure.Failure, bool) {
	all := r.ordered()
	if len(all) == 0 {
		return failure.Failure{}, false
	}
	return all[0], true
}

// Note returns one line that helps to read the root cause; empty for none.
func (r RunResult) Note() string {
	if r.NothingStarted != "" && r.IsFailed() {
		return r.NothingStarted
	}
	if root, ok := r.RootCause(); ok && root.Kind == failure.PeerLost {
		if r.StoreRefusal != nil {
			return fmt.Sprintf("the worker store refused a connection: %v", r.StoreRefusal)
		}
		return "no worker shows a fault of its own: the first that lost its peer is named; look for a hang or a network fault"
	}
	return ""
}

// ordered returns the failures of this node and of others: the root cause first, then by evidence, without the failures
// that only count as a root cause.
func (r RunResult) ordered() []failure.Failure {
	all := r.withCauseFirst()
	if len(all) == 0 {
		return nil
	}
	return append(all[:1], slices.DeleteFunc(all[1:], failure.Failure.OnlyAsCause)...)
}

func (r RunResult) withCauseFirst() []failure.Failure {
	all := slices.Collect(maps.Values(r.Failures))
	for _, f := range r.Others {
		if !slices.ContainsFunc(all, f.Same) { // this node knows more about its own failures
			all = append(all, f)
		}
	}
	slices.SortFunc(all, failure.Compare)
	if r.Cause == nil {
		return absentFirst(waitedFirst(lostPeerFirst(all)))
	}
	all = slices.DeleteFunc(all, r.Cause.Same)
	return slices.Insert(all, 0, *r.Cause)
}

// oneFault is how long the errors that follow from one fault may take to appear.
const oneFault = 2 * time.Second

// lostPeerFirst puts the root cause first among sorted failures. If the likeliest has logged an exception and went on,
// the root cause is the first lost peer. It is the worker that lost none, and whose own error came nearest to the first
// loss. It is often slow to end, so it is stopped before it has an exit code.
func lostPeerFirst(all []failure.Failure) []failure.Failure {
	loss := firstLoss(all)
	if loss.Kind == "" || !wentOn(all[0], loss.Time) {
		return all
	}
	if gaveUpBy(all, loss.Time.Add(failure.ReadDelay)) { // a worker gives up long after the fault
		return all
	}
	nearest := 0
	var later []int // the candidates
	for i, f := range all {
		if !hasDatedError(f) || firstLoss(all[i:i+1]).Kind != "" || !f.Time.After(all[0].Time) ||
			f.Time.After(loss.Time.Add(failure.ReadDelay)) {
			continue
		}
		later = append(later, i)
		if nearest == 0 || f.Time.Sub(loss.Time).Abs() < all[nearest].Time.Sub(loss.Time).Abs() {
			nearest = i
		}
	}
	root := nearest
	for _, i := range later {
		if all[i].Time.Before(all[root].Time) && all[nearest].Time.Sub(all[i].Time) <= oneFault {
			root = i
		}
	}
	if all[root].Time.Sub(all[0].Time) <= oneFault {
		return all
	}
	return moveToFront(all, root)
}

// wentOn reports whether a worker went on after its exception until it lost a peer, or was stopped, and another worker
// lost a peer more than evidence.Recent after the exception.
func wentOn(f failure.Failure, firstLost time.Time) bool {
	lost := firstLoss([]failure.Failure{f}).Time.After(f.Time)
	switch f.Kind {
	case failure.Exception:
		return lost
	case failure.Suspected:
		return lost || firstLost.Sub(f.Time) > evidence.Recent
	}
	return false
}

// gaveUpBy reports whether a worker had waited for a peer in vain by that time.
func gaveUpBy(all []failure.Failure, at time.Time) bool {
	return slices.ContainsFunc(all, func(f failure.Failure) bool {
		return slices.ContainsFunc(f.Findings, func(x failure.Finding) bool {
			return evidence.IsWaiting(x) && !x.Time.After(at)
		})
	})
}

// hasDatedError reports whether the strongest evidence against a worker is an error whose time is known.
func hasDatedError(f failure.Failure) bool {
	switch f.Kind {
	case failure.Suspected, failure.Exception, failure.ErrorFile, failure.Fatal, failure.CUDA, failure.NCCL, failure.Xid:
		return len(f.Findings) > 0 && !f.Findings[0].Time.IsZero()
	}
	return false
}

// firstLoss returns the first report of a lost peer; without a kind if there is none.
func firstLoss(all []failure.Failure) (first failure.Finding) {
	for _, f := range all {
		for _, x := range f.Findings {
			if x.Kind == failure.PeerLost && !x.Time.IsZero() && (first.Kind == "" || x.Time.Before(first.Time)) {
				first = x
			}
		}
	}
	return first
}

func moveToFront(all []failure.Failure, i int) []failure.Failure {
	f := all[i]
	return slices.Insert(slices.Delete(all, i, i+1), 0, f)
}

// waitedFirst puts a worker that has waited in vain before one that lost a connection just before it, among sorted
// failures. A worker that gives up closes its connections, and the words of its peers may be read before its own.
func waitedFirst(all []failure.Failure) []failure.Failure {
	if len(all) == 0 || all[0].Kind != failure.PeerLost {
		return all
	}
	waited := slices.IndexFunc(all, func(f failure.Failure) bool {
		return f.Waited && f.Time.Sub(all[0].Time) <= failure.ReadDelay
	})
	return moveToFront(all, max(0, waited))
}

// absentFirst puts the root cause first among sorted failures: if the likeliest has only waited for a peer in vain, the
// root cause is a worker that was absent, if there is one.
func absentFirst(all []failure.Failure) []failure.Failure {
	if len(all) == 0 || !all[0].Waited {
		return all
	}
	absent := slices.IndexFunc(all, func(f failure.Failure) bool { return f.Kind == failure.Absent })
	if absent < 0 {
		return all
	}
	return moveToFront(all, absent)
}

// anyByItself reports whether a worker failed by itself. A worker that was stopped may have caused a failure, but if no
// worker failed, it caused none.
func anyByItself(failures map[int]failure.Failure) bool {
	for _, f := range failures {
		if !f.Stopped && (f.ExitCode != 0 || f.Signal != 0) || f.Kind == failure.ErrorFile {
			return true
		}
	}
	return false
}

// countable returns the failures of a run that ended with err. It returns none if no worker failed by itself, or if the
// rendezvous was lost and all workers have only lost their peers: the outage that took the store has taken those, too.
func countable(failures map[int]failure.Failure, err error) map[int]failure.Failure {
	root, known := RunResult{Failures: failures}.RootCause()
	outage := known && errors.Is(err, rdzv.ErrRendezvous) && (root.Kind == failure.PeerLost || root.OnlyAsCause())
	if outage || !anyByItself(failures) {
		return nil
	}
	return failures
}

// ownFailures returns the failures of this node in the round that is over, the likeliest root cause first. If all
// workers were stopped because of another node, only that node knows whether one of this node's was absent.
func (a *Agent) ownFailures() []failure.Failure {
	own := RunResult{Failures: a.failures}.ordered()
	if len(own) > 0 && !anyByItself(a.failures) && own[0].OnlyAsCause() {
		return own[1:]
	}
	return own
}
