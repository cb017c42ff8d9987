package rounds

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// save orders the agent, at most once in a round, to let the workers save and then to stop them. Workers that are
// already being stopped get no additional time.
func (m *Member) save(now time.Duration, a Answer) {
	if m.preemptedRound == m.entered+1 {
		return
	}
	m.preemptedRound = m.entered + 1
	m.Preempt(now, *a.Preemption)
	limit := a.Preemption.Grace + m.haltBound()
	if m.killAt.Set {
		limit = min(limit, max(0, m.killAt.At-now))
	}
	before := len(m.orders)
	m.stop(now, a.Note, limit)
	if len(m.orders) == before { // the agent is stopping its workers already
		stop := &rdzv.Stop{Round: m.entered, Why: a.Note, Silence: m.silenceStop}
		m.orders = append(m.orders, Order{KillIn: limit, Stop: stop})
	}
	m.orders[len(m.orders)-1].Stop.Preemption = a.Preemption
}

// Preempt asks the leader to end the run by a preemption. at is when the agent asked for it or learned of it. The first
// call counts.
func (m *Member) Preempt(at time.Duration, p rdzv.Preemption) {
	if m.report.Preempt == nil {
		m.report.Preempt, m.report.preemptAt, m.dirty = &p, at, true
	}
}

// endSaving orders the agent to stop workers that save if the run was closed meanwhile.
func (m *Member) endSaving(o *rdzv.Outcome) {
	if m.HasWorkers() && m.preemptedRound == m.entered+1 && o != nil && o.Ending == rdzv.EndClosed {
		m.orders = append(m.orders, Order{KillIn: -1, Stop: &rdzv.Stop{Round: m.entered, Why: endText(o), Final: true}})
	}
}
