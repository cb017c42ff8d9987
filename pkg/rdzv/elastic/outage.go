package elastic

import (
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// The store may be down for longer than the TTL of a session. An agent that has stopped its workers in time
// (stopTimeout, deadAfter) does no harm, so it keeps trying for the join timeout before it gives up. That time begins
// when the agent notices the silence, not with the last answer: an agent that was paused has not tried yet.

// checkStore handles a silent store, apart from stopping the workers. The agent waits, logs a notice once its session
// may have expired, and gives up at the reconnect deadline.
func (m *member) checkStore(now time.Duration) {
	if !m.silent(now) {
		m.silentSince, m.silenceNoted = optionalTime{}, false
		return
	}
	m.silentSince.setOnce(now)
	giveUp := m.reconnectDeadline()
	switch {
	case m.over != nil:
	case now >= giveUp.at:
		m.over = &ending{err: fmt.Errorf("%w: no answer for %s", rdzv.ErrConnection, seconds.Format(now-m.lastProof))}
	case m.state == ready && !m.silenceNoted && now >= m.lastProof+m.ttl:
		m.silenceNoted = true
		note := fmt.Sprintf("the store has not answered for %s: this node keeps trying for another %s",
			seconds.Format(now-m.lastProof), seconds.Format(giveUp.at-now))
		m.orders = append(m.orders, order{notice: &Answer{Next: giveUp.at - now, Note: note}})
	}
}

// quietAfter returns how long the store may be silent before the agent warns of it, while workers run. An answered
// keep-alive is younger than that: they are sent at least four times in ttl.
func quietAfter(ttl time.Duration) time.Duration { return ttl * 2 / 5 }

// checkQuiet warns once of a store that has begun to be silent, unless it is too late for a warning.
func (m *member) checkQuiet(now time.Duration) {
	silence := now - m.lastProof
	if silence < quietAfter(m.ttl) {
		m.quietNoted = false
	}
	if at := m.quietAt(); !at.set || now < at.at {
		return
	}
	m.quietNoted = true
	if !m.silent(now) {
		m.orders = append(m.orders, order{warning: fmt.Sprintf("the job's store has not answered for %s: without an answer "+
			"this node stops its workers in %s, and gives up %s after that", seconds.Format(silence),
			seconds.Format(stopTimeout(m.ttl)-silence), seconds.Format(m.reconnectTimeout()))})
	}
}

// quietAt returns when checkQuiet has something to do.
func (m *member) quietAt() optionalTime {
	return optionalTime{
		m.lastProof + quietAfter(m.ttl), m.ttl > 0 && m.state == busy && m.over == nil && !m.quietNoted,
	}
}

// reconnectDeadline returns when the agent gives up because the store does not answer. It is not set while the store
// does.
func (m *member) reconnectDeadline() optionalTime {
	return optionalTime{m.silentSince.at + m.reconnectTimeout(), m.silentSince.set}
}

// reconnectTimeout returns how long the agent tries to reach a silent store after stopTimeout.
func (m *member) reconnectTimeout() time.Duration {
	return max(m.report.Job.JoinTimeout, m.ttl-stopTimeout(m.ttl))
}

// nextStoreCheck returns when checkStore has something to do.
func (m *member) nextStoreCheck() optionalTime {
	switch {
	case m.ttl == 0 || m.over != nil:
		return optionalTime{}
	case !m.silentSince.set:
		return optionalTime{m.lastProof + stopTimeout(m.ttl), true}
	case m.state == ready && !m.silenceNoted:
		return optionalTime{m.lastProof + m.ttl, true}
	}
	return m.reconnectDeadline()
}

// storeReplaced forgets the rounds of a store that another one has replaced. The new store counts epochs and rounds
// from the start and has no answer for an earlier session of this agent. Every worker must have ended, and the caller
// calls sessionRenewed next.
func (m *member) storeReplaced(now time.Duration) {
	m.report.HadRound = m.report.HadRound || m.nodes > 0
	m.report.Before = m.usedBefore(now)
	m.fence, m.report.Earlier = Fence{}, true
}

// searchAt returns when an agent without workers gives up its session in a store that does not answer and looks for the
// store as a newcomer does: the agents that keep the store may have begun another one. The session has expired by then,
// wherever it was kept.
func (m *member) searchAt() optionalTime {
	return optionalTime{m.lastProof + m.ttl*4/3, m.ttl > 0 && m.over == nil && !m.workers()}
}
