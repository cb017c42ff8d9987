package elastic

import (
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// runOrder asks the agent to run a round. over is closed when the agent must not start further workers of the round.
type runOrder struct {
	answer Answer
	over   chan struct{}
}

// noRound is the round of a Stop that every agent ignores.
const noRound = -1

// sendStop sends a Stop, in place of one that the agent has not received: the newer one leaves less time, or is about a
// later round. In the same round it takes over what the other one asks. Only the driving goroutine sends.
func (h *Handler) sendStop(s rdzv.Stop) {
	if s.Round != noRound {
		h.lastStop = s
	}
	if s.Round != noRound && h.roundOver != nil {
		close(h.roundOver)
		h.roundOver = nil
	}
	for {
		select {
		case h.stops <- s:
			return
		default:
		}
		select {
		case unread := <-h.stops:
			s = s.Merge(unread)
		default:
		}
	}
}

// repeatStop sends the last Stop again, unless the agent has not received it yet. Only the driving goroutine calls it.
func (h *Handler) repeatStop() {
	if len(h.stops) == 0 {
		h.sendStop(h.lastStop)
	}
}

// withdrawStop takes back a Stop that the agent has not received. Only the driving goroutine calls it.
func (h *Handler) withdrawStop() {
	select {
	case <-h.stops:
	default:
	}
}

// probeState is what probeAgent remembers between calls.
type probeState struct {
	sent time.Duration // of the last Stop
	next optionalTime  // probe
}

// probeAgent checks at intervals, while workers run or are being started, that the agent receives what it is sent. An
// agent that hangs, for example on a folder of its logs, still keeps its session alive, and the other nodes would wait
// for its workers forever. now is the driver's time. probeAgent returns when to call it again; unset if there is
// nothing to check.
func (h *Handler) probeAgent(now time.Duration) (next optionalTime) {
	p := &h.probeState
	if h.m.state != busy || h.m.nodes < 2 {
		*p = probeState{}
		return optionalTime{}
	}
	timeout := h.m.report.Job.Rejoin
	p.next.setOnce(now + timeout/4)
	if now < p.next.at {
		return p.next
	}
	switch {
	case len(h.stops) == 0:
		if h.m.report.Stuck {
			h.log.Warn().Msg("the agent responds again")
		}
		h.sendStop(rdzv.Stop{Round: noRound})
		p.sent = now
		h.m.setStuck(false)
	case now-p.sent >= timeout && !h.m.report.Stuck:
		h.log.Error().Str("for", seconds.Format(now-p.sent)).
			Msg("the agent does not respond: a file system that it uses may hang; the other nodes will go on without it")
		h.m.setStuck(true)
	}
	p.next.at = now + timeout/4
	return p.next
}
