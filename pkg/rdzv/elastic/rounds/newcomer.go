package rounds

import (
	"fmt"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// A node that joins a running job may be broken: no driver, no data, another library. Its workers then fail at once,
// and that must not end a job that has worked without the node. So the leader quarantines a new node that fails, and
// charges nothing. A failure in a job's first round, or on a node that is not new, is charged as usual.

// newcomerPeriod is how long a newcomer has to run before it counts like any other node.
const newcomerPeriod = time.Minute

// newcomerTest returns a function that reports whether a member of the next round is new. New members were not in the
// round before, or were new in it and it was shorter than newcomerPeriod. In a job's first round no node is new.
func (l *Leader) newcomerTest(members []candidate) (isNew func(identity string) bool) {
	if !l.hasRound {
		return func(string) bool { return false }
	}
	short := l.round.haltedAt.At-l.roundStart() < newcomerPeriod
	known := make(map[string]bool, len(l.record.Members))
	for _, m := range l.record.Members {
		if !m.New || !short {
			known[m.Identity] = true
		}
	}
	for _, c := range members {
		if known[c.node.Identity] {
			return func(identity string) bool { return !known[identity] }
		}
	}
	return func(string) bool { return false } // all known nodes have gone: this is a new beginning
}

// roundStart returns when the round began, as far as the leader knows.
func (l *Leader) roundStart() time.Duration {
	if l.round.startedAt.Set {
		return l.round.startedAt.At
	}
	return l.termStart
}

// quarantineNewcomers quarantines the newcomers whose failures ended the round, and reports whether there are any.
func (l *Leader) quarantineNewcomers(now time.Duration) bool {
	ranks := l.failedNewcomers(now)
	for _, rank := range ranks {
		r := l.round.failures.byRank[rank]
		after := seconds.Format(r.at - l.roundStart())
		l.quarantineMember(now, rank, fmt.Sprintf("new in the job, one of its workers failed %s after the start (%s)",
			after, describeFailure(r.failure)))
	}
	return len(ranks) > 0
}

// failedNewcomers returns the ranks of the newcomers to blame for the end of the round. There are none if a worker on a
// node that is not new may have failed by itself, if a newcomer failed only after newcomerPeriod, or if a newcomer is
// still quarantined for an earlier fault.
func (l *Leader) failedNewcomers(now time.Duration) (ranks []int) {
	first, failed := l.round.failures.likeliest()
	if !failed || !l.record.Members[first].New {
		return nil
	}
	for rank, r := range l.round.failures.byRank {
		m := l.record.Members[rank]
		switch {
		case r.failure.OnlyStopped || r.failure.Grade >= failure.GradePeer:
		case !m.New, r.at >= l.roundStart()+newcomerPeriod, l.budget.isAtFault(now, m.Identity):
			return nil
		default:
			ranks = append(ranks, rank)
		}
	}
	slices.Sort(ranks)
	return ranks
}

// describeFailure says in a few words how a worker failed.
func describeFailure(f rdzv.Failure) string {
	switch {
	case f.Summary != "":
		return fmt.Sprintf("rank %d: %s", f.GlobalRank, truncateReason(f.Summary))
	case f.Signal != 0:
		return fmt.Sprintf("rank %d: signal %d", f.GlobalRank, int(f.Signal))
	}
	return fmt.Sprintf("rank %d: exit code %d", f.GlobalRank, f.ExitCode)
}
