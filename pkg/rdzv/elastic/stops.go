package elastic

import (
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// noRound is the round of a Stop that every agent ignores.
const noRound = -1

// stopMailbox passes Stops to an agent, and finds out whether the agent receives them. Its methods belong to the
// goroutine that drives the member.
type stopMailbox struct {
	c     chan rdzv.Stop // holds the last Stop until the agent receives it
	over  chan struct{}  // closed by the next Stop of the round; nil once it is closed
	last  rdzv.Stop      // that was sent
	probe probeState
}

// probeState is what probeAgent remembers between calls.
type probeState struct {
	sent time.Duration // when the last probe was sent
	next optionalTime  // when the next one is due
}

func newStopMailbox() stopMailbox { return stopMailbox{c: make(chan rdzv.Stop, 1)} }

// beginRound returns a channel that is closed when the agent must not start further workers of the round that begins.
func (b *stopMailbox) beginRound() (over chan struct{}) {
	b.over = make(chan struct{})
	return b.over
}

// send sends a Stop, in place of one that the agent has not received: the newer one leaves less time, or is about a
// later round. In the same round it takes over what the other one asks.
func (b *stopMailbox) send(s rdzv.Stop) {
	if s.Round != noRound {
		b.last = s
		if b.over != nil {
			close(b.over)
			b.over = nil
		}
	}
	for {
		select {
		case b.c <- s:
			return
		default:
		}
		select {
		case unread := <-b.c:
			s = s.Merge(unread)
		default:
		}
	}
}

// repeat sends the last Stop again, unless the agent has not received it yet.
func (b *stopMailbox) repeat() {
	if len(b.c) == 0 {
		b.send(b.last)
	}
}

// withdraw takes back a Stop that the agent has not received.
func (b *stopMailbox) withdraw() {
	select {
	case <-b.c:
	default:
	}
}

// probeAgent checks at intervals, while workers run or are being started, that the agent of m receives what it is sent.
// An agent that hangs, for example on a folder of its logs, still keeps its session alive, and the other nodes would
// wait for its workers forever. probeAgent returns when to call it again; unset if there is nothing to check.
func (b *stopMailbox) probeAgent(now time.Duration, m *member, log zerolog.Logger) (next optionalTime) {
	p := &b.probe
	if m.state != busy || m.nodes < 2 {
		*p = probeState{}
		return optionalTime{}
	}
	timeout := m.report.Job.Rejoin
	p.next.setOnce(now + timeout/4)
	if now < p.next.at {
		return p.next
	}
	switch {
	case len(b.c) == 0:
		if m.report.Stuck {
			log.Warn().Msg("the agent responds again")
		}
		b.send(rdzv.Stop{Round: noRound})
		p.sent = now
		m.setStuck(false)
	case now-p.sent >= timeout && !m.report.Stuck:
		log.Error().Str("for", seconds.Format(now-p.sent)).
			Msg("the agent does not respond: a file system that it uses may hang; the other nodes will go on without it")
		m.setStuck(true)
	}
	p.next.at = now + timeout/4
	return p.next
}
