package rounds

import (
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
)

// The times by which a member must have a round, and by which its workers must be dead.

// waitDeadline returns when the agent gives up waiting for a round. It is not set if the agent does not wait, or if the
// leader wants it to wait for as long as necessary.
func (m *Member) waitDeadline() OptionalTime {
	since := m.since
	switch {
	case m.state != ready || m.over != nil:
		return OptionalTime{}
	case m.latest.Kind == Wait && m.latest.Next == 0, m.latest.Kind == Run && m.latest.Fence.Round > m.Round():
		return OptionalTime{}
	case m.latest.Kind == Wait:
		since = max(since, m.answeredAt+m.latest.Next)
	}
	return OptionalTime{since + m.waitTimeout(), true}
}

// waitTimeout returns how long the agent waits for a round while nobody leads. A leader's own waits end earlier.
func (m *Member) waitTimeout() time.Duration {
	return m.report.Job.JoinTimeout + m.report.Job.LastCall + m.report.Job.Rejoin + maxBackoff
}

// StopTimeout returns how long the store may stay silent before the agent stops its workers, and deadAfter how long
// before the last of them must be dead. Both are well below ttl, after which others consider the agent lost.
func StopTimeout(ttl time.Duration) time.Duration { return ttl * 2 / 3 }
func deadAfter(ttl time.Duration) time.Duration   { return ttl * 5 / 6 }

// IsSilent reports whether the store has not answered for StopTimeout, so that no workers may run.
func (m *Member) IsSilent(now time.Duration) bool {
	return m.ttl > 0 && now >= m.lastProof+StopTimeout(m.ttl)
}

// stopIfSilent stops the workers if the store has not answered for StopTimeout.
func (m *Member) stopIfSilent(now time.Duration) {
	if m.HasWorkers() && m.IsSilent(now) {
		m.report.Silent = true
		why := fmt.Sprintf("the rendezvous has not answered for %s", seconds.Format(now-m.lastProof))
		m.stopUnanswered(now, why, max(0, m.lastProof+deadAfter(m.ttl)-now))
	}
}

// Deadline returns when the watchdog has to kill the workers: others may consider this agent lost by then, or the agent
// has missed the time by which it was ordered to kill them. It is not set if there are no workers or no such time.
func (m *Member) Deadline() (by OptionalTime) {
	if !m.HasWorkers() {
		return by
	}
	if m.ttl > 0 {
		by = OptionalTime{m.lastProof + deadAfter(m.ttl), true}
	}
	if late := m.killAt.At + m.killMargin(); m.killAt.Set && (!by.Set || late < by.At) {
		by = OptionalTime{late, true}
	}
	return by
}

// killMargin returns how late the agent may be in killing its workers. haltBound leaves twice as much.
func (m *Member) killMargin() time.Duration { return m.report.Job.Rejoin / 40 }

// NextTick returns when Tick has something to do.
func (m *Member) NextTick() (next OptionalTime) {
	if m.HasWorkers() && m.ttl > 0 && !m.report.Silent {
		next = OptionalTime{m.lastProof + StopTimeout(m.ttl), true}
	}
	for _, at := range []OptionalTime{m.nextStoreCheck(), m.quietAt(), m.waitDeadline()} {
		next.TakeEarlier(at)
	}
	return next
}

// haltBound returns how long the workers may take to stop when the leader halts the round, so that none is left when
// the others go on without this node. The answer may have taken StopTimeout to arrive.
func (m *Member) haltBound() time.Duration {
	return max(0, m.report.Job.Rejoin-StopTimeout(m.ttl)-m.report.Job.Rejoin/20)
}
