package elastic

import "time"

// setStuck notes whether the agent of a part does not respond.
func (l *leader) setStuck(now time.Duration, p *part, is bool) {
	if p.stuck == is {
		return
	}
	p.stuck = is
	if !is {
		if l.stuck--; l.stuck == 0 {
			l.stuckSince = moment{}
		}
		return
	}
	l.stuck++
	l.stuckSince.begin(now)
	l.stuckHost = p.seat.report.Node.Host
}

// stuckTime is how long the first agent that does not respond is waited for: where all of them are stuck, because they share a
// file system, another round would be no better, and they find out one after the other.
func (l *leader) stuckTime() time.Duration { return l.job.Rejoin / 4 }

// watchStuck looks for agents that do not respond while others do. The workers of those that do may wait for the workers of
// the others for ever.
func (l *leader) watchStuck(now time.Duration) {
	if l.stuck > 0 && l.stuck < l.active+l.done && now >= l.stuckSince.at+l.stuckTime() {
		l.interrupt(now, "the agent of %s does not respond", l.stuckHost)
	}
}
