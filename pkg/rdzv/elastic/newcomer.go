package elastic

import (
	"fmt"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// A node that comes to a job that runs may be broken: no driver, no data, another library. Its workers then fail at once, and that must not end a job
// that has worked without it. So such a node is set aside and nothing is charged, as long as it is new. What fails for everybody, in the first
// round or on a node that is not new, is charged: it has another cause.

// newcomerTime is how long a newcomer has to run to be known to work. It is as good as any other node then.
const newcomerTime = time.Minute

// gradePeer is the grade of failures that are the work of another node's (package evidence).
const gradePeer = 3

// newcomers says which of the members of the round that is about to be decided are new: those that were not in the round before, or were
// new there and that did not last. In a job's first round nobody is.
func (l *leader) newcomers(members []candidate) func(identity string) bool {
	if !l.rounds {
		return func(string) bool { return false }
	}
	short := l.halted.at-l.begin() < newcomerTime
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
	return func(string) bool { return false } // nobody is left whom they could have come to
}

// begin is when the round began, as far as is known.
func (l *leader) begin() time.Duration {
	if l.started.set {
		return l.started.at
	}
	return l.began
}

// judgeNewcomers sets aside the newcomers whose workers have failed at once and so ended the round, and reports whether it was them.
func (l *leader) judgeNewcomers(now time.Duration) bool {
	ranks := l.failedNewcomers(now)
	for _, r := range ranks {
		one := l.blame.nodes[r]
		after := printed(one.at - l.begin())
		l.setAside(now, r, fmt.Sprintf("new in the job, a worker of it failed %v after the start (%s)", after, describeFailure(one.failure)))
	}
	return len(ranks) > 0
}

// failedNewcomers are the ranks of the newcomers to blame; none where the failure may be anybody's, and where a newcomer has had its chance.
func (l *leader) failedNewcomers(now time.Duration) (ranks []int) {
	first, failed := l.blame.first()
	if !failed || !l.record.Members[first].New {
		return nil
	}
	for r, one := range l.blame.nodes {
		m := l.record.Members[r]
		switch {
		case one.failure.OnlyStopped || one.failure.Grade >= gradePeer:
		case !m.New, one.at >= l.begin()+newcomerTime, l.budget.isAside(now, m.Identity):
			return nil
		default:
			ranks = append(ranks, r)
		}
	}
	slices.Sort(ranks)
	return ranks
}

// describeFailure says in a few words how a worker failed.
func describeFailure(f rdzv.Failure) string {
	switch {
	case f.Summary != "":
		return fmt.Sprintf("rank %d: %s", f.GlobalRank, shortened(f.Summary))
	case f.Signal != 0:
		return fmt.Sprintf("rank %d: signal %d", f.GlobalRank, int(f.Signal))
	}
	return fmt.Sprintf("rank %d: exit code %d", f.GlobalRank, f.ExitCode)
}
