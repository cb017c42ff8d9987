package rounds

import (
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// NoRound is the round of a Stop that every agent ignores.
const NoRound = -1

// StopMailbox passes Stops to an agent, and finds out whether the agent receives them. The agent receives from C. Only
// the goroutine that drives the member calls the methods.
type StopMailbox struct {
	C     chan rdzv.Stop // holds the last Stop until the agent receives it
	over  chan struct{}  // closed by the next Stop of the round; nil once it is closed
	last  rdzv.Stop      // the last Stop that was sent, probes excepted
	probe probeState
}

// probeState is what ProbeAgent remembers between calls.
type probeState struct {
	sent time.Duration // when the last probe was sent
	next OptionalTime  // when the next one is due
}

// NewStopMailbox returns an empty mailbox.
func NewStopMailbox() StopMailbox { return StopMailbox{C: make(chan rdzv.Stop, 1)} }

// BeginRound returns a channel that is closed when the agent must not start further workers of the round that begins.
func (b *StopMailbox) BeginRound() (over chan struct{}) {
	b.over = make(chan struct{})
	return b.over
}

// Send sends a Stop. It replaces one that the agent has not received: the newer one leaves less time, or is about a
// later round. A Stop of the same round keeps what the replaced one asked, see [rdzv.Stop.Merge].
func (b *StopMailbox) Send(s rdzv.Stop) {
	if s.Round != NoRound {
		b.last = s
		if b.over != nil {
			close(b.over)
			b.over = nil
		}
	}
	for {
		select {
		case b.C <- s:
			return
		default:
		}
		select {
		case unread := <-b.C:
			s = s.Merge(unread)
		default:
		}
	}
}

// Repeat sends the last Stop again, unless the agent has yet to receive one. A Stop must have been sent before.
func (b *StopMailbox) Repeat() {
	if len(b.C) == 0 {
		b.Send(b.last)
	}
}

// Withdraw takes back a Stop that the agent has not received.
func (b *StopMailbox) Withdraw() {
	select {
	case <-b.C:
	default:
	}
}

// ProbeAgent checks at intervals, while m's round has several nodes and its workers run or are being started, that the
// agent receives what it is sent. An agent that hangs, for example on a folder of its logs, still keeps its session
// alive, and the other nodes would wait for its workers forever. ProbeAgent returns when to call it again; unset if
// there is nothing to check.
func (b *StopMailbox) ProbeAgent(now time.Duration, m *Member, log zerolog.Logger) (next OptionalTime) {
	p := &b.probe
	if m.state != busy || m.nodes < 2 {
		*p = probeState{}
		return OptionalTime{}
	}
	timeout := m.report.Job.Rejoin
	p.next.setOnce(now + timeout/4)
	if now < p.next.At {
		return p.next
	}
	switch {
	case len(b.C) == 0:
		if m.report.Stuck {
			log.Warn().Msg("the agent responds again")
		}
		b.Send(rdzv.Stop{Round: NoRound})
		p.sent = now
		m.setStuck(false)
	case now-p.sent >= timeout && !m.report.Stuck:
		log.Error().Str("for", seconds.Format(now-p.sent)).
			Msg("the agent does not respond: a file system that it uses may hang; the other nodes will go on without it")
		m.setStuck(true)
	}
	p.next.At = now + timeout/4
	return p.next
}
