package rounds

import (
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// The store may be down for longer than the TTL of a session. An agent that has stopped its workers in time
// (StopTimeout, deadAfter) does no harm, so it keeps trying for the join timeout before it gives up. That time begins
// when the agent notices the silence, not with the last answer: an agent that was paused has not tried yet.

// checkStore handles a silent store, apart from stopping the workers. The agent waits, logs a notice once its session
// may have expired, and gives up at the reconnect deadline.
func (m *Member) checkStore(now time.Duration) {
	if !m.IsSilent(now) {
		m.silentSince, m.silenceNoted = OptionalTime{}, false
		return
	}
	m.silentSince.setOnce(now)
	giveUp := m.reconnectDeadline()
	switch {
	case m.over != nil:
	case now >= giveUp.At:
		m.over = &Ending{Err: fmt.Errorf("%w: no answer for %s", rdzv.ErrConnection, seconds.Format(now-m.lastProof))}
	case m.state == ready && !m.silenceNoted && now >= m.lastProof+m.ttl:
		m.silenceNoted = true
		note := fmt.Sprintf("the store has not answered for %s: this node keeps trying for another %s",
			seconds.Format(now-m.lastProof), seconds.Format(giveUp.At-now))
		m.orders = append(m.orders, Order{Notice: &Answer{Next: giveUp.At - now, Note: note}})
	}
}

// quietAfter returns how long the store may be silent before the agent warns of it, while workers run. It is longer
// than the time between keep-alives, which is at most a quarter of ttl.
func quietAfter(ttl time.Duration) time.Duration { return ttl * 2 / 5 }

// checkQuiet warns once of a store that has begun to be silent, unless the workers have to stop already.
func (m *Member) checkQuiet(now time.Duration) {
	silence := now - m.lastProof
	if silence < quietAfter(m.ttl) {
		m.quietNoted = false
	}
	if at := m.quietAt(); !at.Set || now < at.At {
		return
	}
	m.quietNoted = true
	if !m.IsSilent(now) {
		m.orders = append(m.orders, Order{Warning: fmt.Sprintf("the job's store has not answered for %s: without an answer "+
			"this node stops its workers in %s, and gives up %s after that", seconds.Format(silence),
			seconds.Format(StopTimeout(m.ttl)-silence), seconds.Format(m.reconnectTimeout()))})
	}
}

// quietAt returns when checkQuiet has something to do.
func (m *Member) quietAt() OptionalTime {
	return OptionalTime{
		m.lastProof + quietAfter(m.ttl), m.ttl > 0 && m.state == busy && m.over == nil && !m.quietNoted,
	}
}

// reconnectDeadline returns when the agent gives up because the store does not answer; unset while the store answers.
func (m *Member) reconnectDeadline() OptionalTime {
	return OptionalTime{m.silentSince.At + m.reconnectTimeout(), m.silentSince.Set}
}

// reconnectTimeout returns how long the agent tries to reach a silent store after StopTimeout.
func (m *Member) reconnectTimeout() time.Duration {
	return max(m.report.Job.JoinTimeout, m.ttl-StopTimeout(m.ttl))
}

// nextStoreCheck returns when checkStore has something to do.
func (m *Member) nextStoreCheck() OptionalTime {
	switch {
	case m.ttl == 0 || m.over != nil:
		return OptionalTime{}
	case !m.silentSince.Set:
		return OptionalTime{m.lastProof + StopTimeout(m.ttl), true}
	case m.state == ready && !m.silenceNoted:
		return OptionalTime{m.lastProof + m.ttl, true}
	}
	return m.reconnectDeadline()
}

// StoreReplaced forgets the rounds of a store that another one has replaced. The new store counts epochs and rounds
// from the start and has no answer for an earlier session of this agent. Every worker must have ended, and the caller
// calls SessionRenewed next.
func (m *Member) StoreReplaced(now time.Duration) {
	m.report.HadRound = m.report.HadRound || m.nodes > 0
	m.report.Before = m.usedBefore(now)
	m.fence, m.report.Earlier = Fence{}, true
}

// SearchAt returns when an agent without workers gives up its session in a store that does not answer. It then looks
// for the store as a newcomer does, because the agents that keep the store may have begun another one. The session has
// expired by then, wherever it was kept. The time is unset if there are workers or the agent has ended.
func (m *Member) SearchAt() OptionalTime {
	return OptionalTime{m.lastProof + m.ttl*4/3, m.ttl > 0 && m.over == nil && !m.HasWorkers()}
}
