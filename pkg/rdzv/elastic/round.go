package elastic

import (
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// handOut tells all participants of the recorded round to run it.
func (l *leader) handOut() {
	for rank, place := range places(&l.record) {
		if p := l.parts[rank]; p.seat != nil && p.fate == active && p.seat.misfit == "" {
			l.tell(p.seat, Answer{Kind: Run, Place: &place, Note: l.remark})
		}
	}
}

// watch looks for a reason to end the round that runs.
func (l *leader) watch(now time.Duration) {
	if l.done == len(l.parts) {
		l.end(now, rdzv.Outcome{Ending: rdzv.EndSucceeded, Restarts: l.record.Restarts})
		return
	}
	l.watchStuck(now)
	if l.disturbed != "" {
		l.halt(now, l.disturbed)
		return
	}
	if l.watchStore(now) {
		return
	}
	if l.eligible == 0 || l.done > 0 || l.job.Static || l.job.Grow != GrowNow || len(l.parts) >= l.limit() {
		l.settle = moment{}
		return
	}
	if l.rest = l.budget.growthPause(now); l.rest.set {
		l.settle = moment{}
		return
	}
	l.settle.begin(now) // all that are eligible are newcomers: no participant is, before it stops or succeeds
	if now >= l.settle.at+l.job.JoinSettle {
		l.grown = moment{now, true}
		why := fmt.Sprintf("%d nodes have come", l.eligible)
		if l.eligible == 1 {
			why = "a node has come"
		}
		l.halt(now, why)
	}
}

// halt ends the round: everybody is to stop its workers.
func (l *leader) halt(now time.Duration, why string) {
	l.state, l.halted, l.halting, l.settle = halting, moment{now, true}, true, moment{}
	for r := range l.parts {
		p := &l.parts[r]
		if p.seat == nil {
			continue
		}
		if p.fate == done { // it has to get ready like the others
			l.retire(p, active)
			l.active++
		}
		if p.seat.misfit == "" {
			l.tell(p.seat, Answer{Kind: Halt, Note: why, Grow: l.grown.set})
		}
	}
}

// finishHalt waits until no worker of the round is left, or those that are have had their time, and passes the verdict.
func (l *leader) finishHalt(now time.Duration) {
	if l.active > 0 {
		if now < l.halted.at+l.job.Rejoin {
			return
		}
		for r := range l.parts {
			if p := &l.parts[r]; p.fate == active {
				l.retire(p, fenced)
				p.seat.fenced = l.record.Round
				l.budget.lose(now, l.record.Members[r].Identity, l.job)
			}
		}
	}
	l.verdict(now)
}

// verdict says what the round that has come to its end costs. Where a node was lost or has left, the failures of the others are
// its doing, and nothing is charged; else there is one charge, however many workers failed.
func (l *leader) verdict(now time.Duration) {
	l.enterForming()
	short := 0
	unreached := l.judgeStore(now)
	switch {
	case !unreached:
		l.unreachedRounds = 0
	case l.unreachedRounds >= maxUnreached:
		l.endUnreached(now)
		return
	}
	if !unreached && l.blame.failed && !l.membershipChanged() && !l.judgeNewcomers(now) {
		l.budget.charge(now)
		spent := l.budget.charged(now, l.job.RestartWindow) > l.job.MaxRestarts
		if spent || l.blame.final(l.record.Round == l.first, len(l.parts)) {
			o := rdzv.Outcome{Ending: rdzv.EndFailed, Restarts: l.restarts}
			if !spent {
				o.Text = "the program could not be executed, which a restart does not change"
			}
			o.Cause, o.Others = l.blame.outcome(now)
			l.end(now, o)
			return
		}
		l.restarts++
		if l.started.set && l.halted.at-l.started.at < l.job.MinUptime {
			short = l.short + 1
		}
	}
	if l.short = short; short > 1 {
		pause := min(maxBackoff, minBackoff<<min(short-2, 16))
		l.backoff, l.prompt = moment{now + pause, true}, pause >= firstNote
	}
}

// Rounds that fail too soon, one after the other, are spaced by minBackoff, then by twice as much each time.
const (
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
)

// membershipChanged reports whether a participant has gone from the round, or is about to, or has not said that it is still there.
func (l *leader) membershipChanged() bool {
	for _, p := range l.parts {
		switch {
		case p.fate == lost, p.fate == left, p.fate == fenced, p.seat == nil:
			return true
		case p.seat.newer, p.seat.report.Leaving, p.seat.report.Silent && p.seat.report.Fence.Round == l.record.Round:
			return true
		}
	}
	return false
}
