package elastic

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// runOrder asks the agent to run a round. over is closed when no worker of it may be started any more.
type runOrder struct {
	answer Answer
	over   chan struct{}
}

// noRound is the round of a Stop that every agent ignores.
const noRound = -1

// sendStop sends a Stop, in place of one that the agent has not received: the newest has the least time, or is about a later round.
// Only the driving goroutine sends.
func (h *Handler) sendStop(s rdzv.Stop) {
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
		case <-h.stops:
		default:
		}
	}
}

// probe finds out, at intervals, whether the agent receives what it is sent while its workers run or are being started: one that
// hangs, because a folder of its logs does, say, proves its life to the store all the same, and the other nodes would wait for
// its workers for ever. now is the driver's time. It returns when it wants to be called again; not set where there is nothing to find out.
func (h *Handler) probeAgent(now time.Duration) (next optionalTime) {
	p := &h.probeState
	if h.m.state != busy || h.m.nodes < 2 {
		*p = probeState{}
		return optionalTime{}
	}
	patience := h.m.report.Job.Rejoin
	if !p.next.set {
		p.next = optionalTime{now + patience/4, true}
	}
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
	case now-p.sent >= patience && !h.m.report.Stuck:
		h.log.Error().Stringer("for", printed(now-p.sent)).
			Msg("the agent does not respond: a file system that it uses may hang; the other nodes will go on without it")
		h.m.setStuck(true)
	}
	p.next.at = now + patience/4
	return p.next
}

// probing is what probe remembers.
type probeState struct {
	sent time.Duration // when the Stop was sent that has not been received yet
	next optionalTime
}
