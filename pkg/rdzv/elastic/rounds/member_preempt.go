package rounds

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// save orders the agent to let the workers save and then to stop them, once a round. Workers that are being stopped
// already get no more time by it.
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
	if len(m.orders) == before { // it is stopping them already
		stop := &rdzv.Stop{Round: m.entered, Why: a.Note, Silence: m.silenceStop}
		m.orders = append(m.orders, Order{KillIn: limit, Stop: stop})
	}
	m.orders[len(m.orders)-1].Stop.Preemption = a.Preemption
}

// Preempt asks the leader to end the run by a preemption. The first request stands. The agent asks at at.
func (m *Member) Preempt(at time.Duration, p rdzv.Preemption) {
	if m.report.Preempt == nil {
		m.report.Preempt, m.report.preemptAt, m.dirty = &p, at, true
	}
}

// endSaving orders the agent to stop workers that save, because somebody has closed the run meanwhile.
func (m *Member) endSaving(o *rdzv.Outcome) {
	if m.HasWorkers() && m.preemptedRound == m.entered+1 && o != nil && o.Ending == rdzv.EndClosed {
		m.orders = append(m.orders, Order{KillIn: -1, Stop: &rdzv.Stop{Round: m.entered, Why: endText(o), Final: true}})
	}
}
