package elastic

import (
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// The store may be down for longer than a session lives. The agent stops its workers in time (silence, lastMoment) and then harms nobody, so
// it keeps trying for the join timeout before it gives up. The time begins when the agent notices the silence, not with the last answer: an
// agent that stood still has not tried yet.

// awaitStore does what a silent store asks of an agent beside stopping its workers: it waits, says so once the session may have ended, and gives up in the end.
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
		m.over = &ending{err: fmt.Errorf("%w: no answer for %v", rdzv.ErrConnection, now-m.lastProof)}
	case m.state == ready && !m.silenceNoted && now >= m.lastProof+m.ttl:
		m.silenceNoted = true
		m.orders = append(m.orders, order{notice: &Answer{Next: giveUp.at - now, Note: fmt.Sprintf(
			"the store has not answered for %v: this node tries for another %v", printed(now-m.lastProof), printed(giveUp.at-now))}})
	}
}

// giveUp is when the agent ends because the store does not answer; not set while it does.
func (m *member) reconnectDeadline() optionalTime {
	return optionalTime{m.silentSince.at + max(m.report.Job.JoinTimeout, m.ttl-stopTimeout(m.ttl)), m.silentSince.set}
}

// nextAwait is when awaitStore has something to do.
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

// printed rounds a duration for people.
func printed(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }

// moved forgets the rounds of a store that another one has replaced. That one counts epochs and rounds anew, and has no answer that was
// meant for an earlier session of this agent. No worker may be left; renewed is to follow.
func (m *member) storeReplaced() { m.fence, m.report.Earlier = Fence{}, true }
