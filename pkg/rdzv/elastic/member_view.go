package elastic

import (
	"cmp"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// What the driver of a member may ask it.

// isOver returns why the agent leaves the rendezvous for good; nil while it takes part. Its workers may still run.
func (m *member) isOver() *ending { return m.over }

// hasEnded is isOver once the agent has no workers to stop.
func (m *member) hasEnded() *ending {
	if m.state == busy || m.state == stopping {
		return nil
	}
	return m.over
}

// outcome returns how the job has ended; nil as long as the agent does not know an end.
func (m *member) outcome() *ending {
	if m.over == nil || m.over.outcome == nil {
		return nil
	}
	return m.over
}

// giveUp makes err the reason why the agent leaves, unless it knows how the job has ended.
func (m *member) giveUp(err error) {
	m.over = cmp.Or(m.outcome(), &ending{err: err})
}

// isIdle reports whether the agent has no part in a round that is not over for its workers.
func (m *member) isIdle() bool { return m.state == ready || m.state == outside || m.mayDepart() }

// awaitsRerun reports whether the agent waits for the end of the run before its own, and of that run's store.
func (m *member) awaitsRerun() bool {
	return m.state == ready && m.latest.Kind == Wait && m.latest.Again
}

// isLeaving reports whether the agent is about to leave the job.
func (m *member) isLeaving() bool { return m.report.Leaving }

// isDeparting reports whether the agent has asked to leave the exit barrier.
func (m *member) isDeparting() bool { return m.report.Departing }

// preemption returns the preemption that the agent knows of; nil for none.
func (m *member) preemption() *rdzv.Preemption { return m.report.Preempt }

// mustStop reports whether the agent has been ordered to stop the workers of its round.
func (m *member) mustStop() bool { return m.stopOrdered }

// lastPlace returns the number of the last round that the agent was in, its rank there, and how many nodes there were;
// nodes is 0 before the first round.
func (m *member) lastPlace() (round, rank, nodes int) { return m.entered, m.rank, m.nodes }

// provenAt returns when the last keep-alive was sent that the store has answered.
func (m *member) provenAt() time.Duration { return m.lastProof }

// currentReport returns the report as it is now.
func (m *member) currentReport() Report { return m.report }
