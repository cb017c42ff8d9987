package rounds

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// chargeFailure charges the failure of a round. It returns how the job ends if no restart can follow, else nil.
func (l *Leader) chargeFailure(now time.Duration) *rdzv.Outcome {
	failures := &l.round.failures
	cause, others := failures.causes(now)
	f := l.failedRound(cause)
	if l.repeats == nil {
		l.repeats = new(repeats)
	}
	after := l.repeats.after(f)
	l.repeats, l.charged = &after, true
	l.budget.charge(now)
	spent := l.budget.charged(now, l.job.RestartWindow) > l.job.MaxRestarts
	rule, why := l.job.Policy.verdict(after, f)
	final := cmp.Or(why, failures.final(l.record.Round == l.firstRound, len(l.round.members)))
	if l.endsJob() {
		final = cmp.Or(final, "--hang-action=stop ends a job that hangs")
	}
	if !spent && final == "" {
		l.excludeNodes(now, cause, f.code)
		if l.job.Policy.MaxIdle > 0 && f.step == nil {
			l.announcements = append(l.announcements,
				"no step is known of this failure, so it does not count for --max-restarts-without-progress")
		}
		if notice := after.notice(); notice != "" {
			l.announcements = append(l.announcements, notice)
		}
		return nil
	}
	o := rdzv.Outcome{Ending: rdzv.EndFailed, Restarts: l.restarts, Rule: rule, Cause: cause, Others: others}
	if !spent || rule != "" {
		o.Text = final
	}
	return &o
}

// failedRound returns the facts about the round that the policy judges.
func (l *Leader) failedRound(cause *rdzv.Failure) failedRound {
	f := failedRound{stop: l.stopNode()}
	if cause != nil {
		f.signature, f.rank, f.alike, f.code = cause.Signature(), cause.GlobalRank, cause.Alike, cause.CauseCode()
		if cause.Kind == failure.Hang { // the launcher has a code of its own for it
			f.code = 0
		}
	}
	for _, report := range l.round.failures.byRank {
		other := &report.failure
		f.alike = f.alike || !other.Same(cause.Failure) && !other.OnlyStopped && other.Signature() == f.signature
	}
	fell := false // a step counter that restarts, such as in each epoch, is no measure of progress
	for rank, m := range l.round.members {
		f.world += l.record.Members[rank].Nproc
		if r := l.endOf(&m); r != nil && r.Steps != nil {
			fell = fell || r.Steps.Fell
			if step := r.Steps.last(); step != nil && (f.step == nil || *step > *f.step) {
				f.step = step
			}
		}
	}
	if fell {
		f.step = nil
	}
	return f
}

// endOf returns the Ready report of a member after the round; nil until it arrives.
func (l *Leader) endOf(m *roundMember) *Report {
	if p := m.participant; p != nil && p.report.Phase == Ready && p.report.Fence.Round == l.record.Round {
		return &p.report
	}
	return nil
}

// stopNode returns the host of a member with a worker that reports that no restart helps; empty without such a member.
// A report of a newcomer that has failed does not count: the job has worked without that node.
func (l *Leader) stopNode() string {
	newcomers := l.failedNewcomers(l.history.now)
	for rank := range l.round.members {
		if r := l.endOf(&l.round.members[rank]); r != nil && r.Stop && !slices.Contains(newcomers, rank) {
			return l.hostOf(rank)
		}
	}
	return ""
}

// stopRequested returns how the job ends if a worker has reported that no restart helps. The report counts even if
// nodes were lost and the worker's failure may follow from that.
func (l *Leader) stopRequested(now time.Duration) *rdzv.Outcome {
	node := l.stopNode()
	if node == "" {
		return nil
	}
	cause, others := l.round.failures.causes(now)
	rule, why := Policy{}.verdict(repeats{}, failedRound{stop: node})
	return &rdzv.Outcome{
		Ending: rdzv.EndFailed, Restarts: l.restarts, Rule: rule, Text: why, Cause: cause, Others: others,
	}
}

// isOf reports whether a failure is what the member of that rank has reported.
func (l *Leader) isOf(f *rdzv.Failure, rank int) bool {
	report, ok := l.round.failures.byRank[rank]
	return ok && f != nil && report.failure.Same(f.Failure)
}

// excludeNodes quarantines the nodes that a worker has called faulty. It also quarantines the node of the root cause if
// Policy.ExcludeCodes contains the exit code.
func (l *Leader) excludeNodes(now time.Duration, cause *rdzv.Failure, code int) {
	for rank := range l.round.members {
		r := l.endOf(&l.round.members[rank])
		switch {
		case r != nil && r.ExcludeNode:
			l.quarantineMember(now, rank, "a worker has written \"exclude-node\" into its control file")
		case l.job.Policy.ExcludeCodes.Has(code) && l.isOf(cause, rank):
			l.quarantineMember(now, rank, fmt.Sprintf("a worker has exited with code %d, one of --exclude-node-codes", code))
		}
	}
}
