package rounds

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/elasticrun/elasticrun/internal/plural"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// A preemption ends the run: its nodes are about to be taken away. Any agent may ask for one (Report.Preempt), also a
// spare. The leader records it before any agent learns of it. From then on no round is decided and no failure is
// charged. The running round is halted with an order to save first (Answer.Preemption). The run then ends with
// rdzv.EndPreempted, or with success if the workers of all members had finished.
//
//	forming ─▶ ended
//	running ─Halt with the order─▶ halting ─all members have stopped─▶ ended
//	halting ─Halt again, with the order─▶ halting

// preemption is the preemption of the run.
type preemption struct {
	rdzv.Preemption
	ordered bool // the members of the round have the order of this leader
	// endAt is when a run without a round ends, although more nodes may be on their way; unset if the leader does not wait
	// for such nodes.
	endAt OptionalTime
}

// order returns the preemption to send to the members; nil without one.
func (p *preemption) order() *rdzv.Preemption {
	if p == nil {
		return nil
	}
	return &p.Preemption
}

// requestPreemption records an agent's request, made age ago, to end the run by a preemption. The first request stands.
func (l *Leader) requestPreemption(p rdzv.Preemption, age time.Duration) {
	if l.outcome != nil {
		return
	}
	l.round.chargeNothingSince(l.history.now - age - rdzv.SignalSpread)
	if l.preemption == nil {
		p.Grace = l.job.PreemptGrace
		l.preemption = &preemption{Preemption: p}
		l.writes = append(l.writes, Write{Key: KeyPreempted, Value: p})
	}
}

// isSaving reports whether an agent may have workers that save. If so, a new agent of its node does not replace it.
func (l *Leader) isSaving(p *participant) bool {
	return l.preemption != nil && p.rank >= 0 && l.outcome == nil
}

// preemptIfRequested ends the run, or halts its round with the order to save first. A run whose workers have all exited
// with 0 has succeeded.
func (l *Leader) preemptIfRequested(now time.Duration) {
	p := l.preemption
	if p == nil || p.ordered {
		return
	}
	switch l.state {
	case forming:
		if l.awaitsNewcomers(now) {
			return
		}
		l.endPreempted(now)
	case running:
		if !l.round.allDone() {
			p.ordered = true
			l.haltRound(now, l.preemptionNote())
		}
	case halting: // the halt already gives the members less time than the grace
		p.ordered = true
		l.orderHalt(l.preemptionNote())
	case ended:
	}
}

// lateNodes is how long the leader of a run that is preempted before its first round waits for further nodes. A node
// that arrives after the store's host has ended would wait for the rendezvous until its timeout.
const lateNodes = 5 * time.Second

// awaitsNewcomers reports whether further nodes of a run without a round may come in a moment.
func (l *Leader) awaitsNewcomers(now time.Duration) bool {
	expected := cmp.Or(l.job.Expected, l.job.Max)
	if l.hasRound || len(l.participants.byID) >= expected {
		return false
	}
	l.preemption.endAt.setOnce(now + lateNodes)
	return now < l.preemption.endAt.At
}

// preemptionEnd returns when a preempted run without a round ends.
func (l *Leader) preemptionEnd() OptionalTime {
	if l.preemption == nil {
		return OptionalTime{}
	}
	return l.preemption.endAt
}

// preemptionNote says why the run ends, for people.
func (l *Leader) preemptionNote() string { return "the job is preempted: " + l.preemption.By }

// stopLimit is how long members may take to stop their workers once the round has been halted.
func (l *Leader) stopLimit() time.Duration {
	limit := l.job.Rejoin
	if l.preemption != nil {
		limit += l.preemption.Grace
	}
	return limit
}

// endPreempted ends the run once no worker is left. A failure before the preemption that ends the job without a restart
// takes precedence.
func (l *Leader) endPreempted(now time.Duration) {
	r := &l.round
	if l.state == halting && r.failures.anyFailed && r.departed == 0 && !l.membershipChanged() &&
		len(l.failedNewcomers(now)) == 0 {
		if o := l.chargeFailure(now); o != nil {
			l.endRun(now, *o)
			return
		}
	}
	finished := 0
	for rank := range r.members {
		if l.hasFinished(&r.members[rank]) {
			finished++
		}
	}
	o := rdzv.Outcome{Ending: rdzv.EndPreempted, Restarts: l.restarts, Text: l.preemption.By}
	switch n := len(r.members); {
	case l.state != halting:
		o.Text += "; no worker was running"
	case finished == n:
		o.Ending, o.Text = rdzv.EndSucceeded, ""
	case finished > 0:
		o.Text += fmt.Sprintf("; the workers of %d of %s had finished", finished, plural.Of(n, "node"))
	}
	l.endRun(now, o)
}

// hasFinished reports whether the workers of a member have done all their work.
func (l *Leader) hasFinished(m *roundMember) bool {
	p := m.participant
	switch {
	case m.departed, p == nil && m.status == done:
		return true
	case p == nil || m.status != stopped:
		return false
	}
	return p.report.Finished && p.report.Fence.Round == l.record.Round
}

// takeOverPreemption continues a preemption that an earlier leader recorded. The members may already have the order.
// The age of the record is unknown; each member measures its own grace.
func (l *Leader) takeOverPreemption(p *rdzv.Preemption) {
	if p == nil || l.outcome != nil || l.job == nil {
		return
	}
	l.preemption = &preemption{Preemption: *p}
	l.round.chargeNothingSince(math.MinInt64)
}

// chargeNothingSince makes failures from that time on consequences of the round's end, so they are not charged.
func (r *roundState) chargeNothingSince(at time.Duration) {
	if !r.unchargedSince.Set || at < r.unchargedSince.At {
		r.unchargedSince = OptionalTime{at, true}
	}
	r.failures.dropSince(at)
}
