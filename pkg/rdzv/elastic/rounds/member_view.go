package rounds

import (
	"cmp"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// What the driver reads of its member.

// Ending returns why the agent leaves the rendezvous for good; nil while it takes part. Its workers may still run.
func (m *Member) Ending() *Ending { return m.over }

// EndingOnceStopped returns Ending if the agent is in no round, or has finished its round. Otherwise it returns nil,
// even after Stopped: the agent has yet to enter again.
func (m *Member) EndingOnceStopped() *Ending {
	if m.state == busy || m.state == stopping {
		return nil
	}
	return m.over
}

// JobEnding returns how the job has ended; nil while the agent does not know that it has.
func (m *Member) JobEnding() *Ending {
	if m.over == nil || m.over.Outcome == nil {
		return nil
	}
	return m.over
}

// GiveUp makes err the reason why the agent leaves, unless it knows how the job has ended.
func (m *Member) GiveUp(err error) {
	m.over = cmp.Or(m.JobEnding(), &Ending{Err: err})
}

// IsIdle reports whether the agent has no workers and takes part in no round, unless it waits at the exit barrier.
func (m *Member) IsIdle() bool {
	return m.state == ready || m.state == outside || m.MayDepart()
}

// AwaitsRerun reports whether the agent waits until the store of the finished run has ended, to begin the run again.
func (m *Member) AwaitsRerun() bool {
	return m.state == ready && m.latest.Kind == Wait && m.latest.Again
}

// IsLeaving reports whether the agent is about to leave the job.
func (m *Member) IsLeaving() bool { return m.report.Leaving }

// IsDeparting reports whether the agent has asked to leave the exit barrier.
func (m *Member) IsDeparting() bool { return m.report.Departing }

// Preemption returns the preemption that the agent knows of; nil for none.
func (m *Member) Preemption() *rdzv.Preemption { return m.report.Preempt }

// MustStop reports whether the agent has been ordered to stop the workers of its round.
func (m *Member) MustStop() bool { return m.stopOrdered }

// LastPlace returns the number of the last round that the agent was in, its rank there, and how many nodes there were;
// nodes is 0 before the first round.
func (m *Member) LastPlace() (round, rank, nodes int) { return m.entered, m.rank, m.nodes }

// ProvenAt returns when the last answered keep-alive was sent.
func (m *Member) ProvenAt() time.Duration { return m.lastProof }

// CurrentReport returns the report as it is now.
func (m *Member) CurrentReport() Report { return m.report }
