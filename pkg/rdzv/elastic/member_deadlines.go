package elastic

import (
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
)

// The times by which a member must have a round, and by which its workers must be dead.

// waitDeadline returns when the agent gives up waiting for a round. It is not set if the agent does not wait, or if the
// leader wants it to wait for as long as necessary.
func (m *member) waitDeadline() optionalTime {
	since := m.since
	switch {
	case m.state != ready || m.over != nil:
		return optionalTime{}
	case m.latest.Kind == Wait && m.latest.Next == 0, m.latest.Kind == Run && m.latest.Fence.Round > m.round():
		return optionalTime{}
	case m.latest.Kind == Wait:
		since = max(since, m.answeredAt+m.latest.Next)
	}
	return optionalTime{since + m.waitTimeout(), true}
}

// waitTimeout returns how long the agent waits for a round while nobody leads. A leader's own waits end earlier.
func (m *member) waitTimeout() time.Duration {
	return m.report.Job.JoinTimeout + m.report.Job.LastCall + m.report.Job.Rejoin + maxBackoff
}

// stopTimeout returns how long the store may stay silent before the agent stops its workers, and deadAfter how long
// before the last of them must be dead. Both are well below ttl, after which others consider the agent lost.
func stopTimeout(ttl time.Duration) time.Duration { return ttl * 2 / 3 }
func deadAfter(ttl time.Duration) time.Duration   { return ttl * 5 / 6 }

// silent reports whether the store has not answered for stopTimeout, so that no workers may run.
func (m *member) silent(now time.Duration) bool {
	return m.ttl > 0 && now >= m.lastProof+stopTimeout(m.ttl)
}

// stopIfSilent stops the workers if the store has not answered for stopTimeout.
func (m *member) stopIfSilent(now time.Duration) {
	if m.workers() && m.silent(now) {
		m.report.Silent = true
		why := fmt.Sprintf("the rendezvous has not answered for %s", seconds.Format(now-m.lastProof))
		m.stopUnanswered(now, why, max(0, m.lastProof+deadAfter(m.ttl)-now))
	}
}

// deadline returns when the watchdog has to kill the workers: others may consider this agent lost by then, or the agent
// has missed the time by which it was ordered to kill them. It is not set if there are no workers or no such time.
func (m *member) deadline() (by optionalTime) {
	if !m.workers() {
		return by
	}
	if m.ttl > 0 {
		by = optionalTime{m.lastProof + deadAfter(m.ttl), true}
	}
	if late := m.killAt.at + m.killMargin(); m.killAt.set && (!by.set || late < by.at) {
		by = optionalTime{late, true}
	}
	return by
}

// killMargin returns how late the agent may be in killing its workers. haltBound leaves twice as much.
func (m *member) killMargin() time.Duration { return m.report.Job.Rejoin / 40 }

// nextTick returns when tick has something to do.
func (m *member) nextTick() (next optionalTime) {
	first := func(at time.Duration) {
		if !next.set || at < next.at {
			next = optionalTime{at, true}
		}
	}
	if m.workers() && m.ttl > 0 && !m.report.Silent {
		first(m.lastProof + stopTimeout(m.ttl))
	}
	for _, at := range []optionalTime{m.nextStoreCheck(), m.quietAt()} {
		if at.set {
			first(at.at)
		}
	}
	if by := m.waitDeadline(); by.set {
		first(by.at)
	}
	return next
}

// haltBound returns how long the workers may take to stop when the leader halts the round, so that none is left when
// the others go on without this node. The answer may have taken stopTimeout to arrive.
func (m *member) haltBound() time.Duration {
	return max(0, m.report.Job.Rejoin-stopTimeout(m.ttl)-m.report.Job.Rejoin/20)
}
