package coord

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"time"
)

// refusals decides which refusals are logged. The first refusal of each address and reason is logged at once; the later
// ones are counted and logged as one line for each interval. It limits only the log, not the refusals. The zero value
// is ready for use.
type refusals struct {
	tallies        map[refusalSource]*tally
	summaryRunning bool // logRefusalSummaries is running
}

const (
	// refusalInterval is how often the further refusals of one address are logged as a summary.
	refusalInterval = time.Minute
	// maxTallies limits the number of addresses that are counted separately, and so the lines of an interval.
	maxTallies = 16
)

// refusalSource is who is refused and why. The zero value stands for all addresses beyond maxTallies.
type refusalSource struct {
	from   netip.Addr
	reason Reason
}

// tally counts the refusals of one source since its last log line.
type tally struct {
	refusalSource
	times   int
	message string        // of the last refusal
	until   time.Duration // the end of the interval
}

// add counts a refusal. It reports whether the caller must log the refusal now.
func (r *refusals) add(source refusalSource, message string, now time.Duration) bool {
	first := false
	t := r.tallies[source]
	if t == nil && len(r.tallies) >= maxTallies {
		source = refusalSource{}
		t = r.tallies[source]
	} else if t == nil {
		first = true
	}
	if t == nil {
		t = &tally{refusalSource: source, until: now + refusalInterval}
		if r.tallies == nil {
			r.tallies = map[refusalSource]*tally{}
		}
		r.tallies[source] = t
	}
	if t.message = message; !first {
		t.times++
	}
	return first
}

// due returns the tallies whose interval has ended, in a fixed order, and begins their next interval. It forgets
// sources without a refusal in the interval, so their next refusal is logged at once.
func (r *refusals) due(now time.Duration) []tally {
	var due []tally
	for source, t := range r.tallies {
		switch {
		case now < t.until:
		case t.times == 0:
			delete(r.tallies, source)
		default:
			due = append(due, *t)
			t.times, t.until = 0, now+refusalInterval
		}
	}
	slices.SortFunc(due, func(a, b tally) int { return cmp.Or(a.from.Compare(b.from), cmp.Compare(a.reason, b.reason)) })
	return due
}

// next returns when the next interval ends; ok is false if there is no tally.
func (r *refusals) next() (at time.Duration, ok bool) {
	for _, t := range r.tallies {
		if !ok || t.until < at {
			at, ok = t.until, true
		}
	}
	return at, ok
}

// recordRefusal counts a refusal. It logs the refusal now or leaves it to the next summary.
func (s *Server) recordRefusal(nc net.Conn, why refusal) {
	source := refusalSource{from: ipAddr(nc.RemoteAddr()).Addr(), reason: why.reason}
	s.mu.Lock()
	s.stats.Refused++
	if why.reason == ReasonElsewhere { // nothing is wrong with the agent
		s.mu.Unlock()
		return
	}
	now := time.Since(s.start)
	first := s.refusals.add(source, why.message, now)
	if !s.refusals.summaryRunning && !s.closed {
		s.refusals.summaryRunning = true
		s.running.Go(s.logRefusalSummaries)
	}
	s.mu.Unlock()
	if first {
		s.opts.Logger.Warn().Stringer("from", nc.RemoteAddr()).Stringer("reason", why.reason).
			Msg("refused an agent: " + why.message)
	}
}

// logRefusalSummaries logs summaries until an interval has passed without refusals or the store ends.
func (s *Server) logRefusalSummaries() {
	for running := true; running; {
		s.mu.Lock()
		at, ok := s.refusals.next()
		s.refusals.summaryRunning = ok
		s.mu.Unlock()
		if !ok {
			return
		}
		select {
		case <-time.After(at - time.Since(s.start)):
		case <-s.stop:
			running = false // log the last summary now
		}
		now := time.Since(s.start)
		if !running {
			now = maxTTL
		}
		s.mu.Lock()
		due := s.refusals.due(now)
		s.mu.Unlock()
		for _, t := range due {
			s.logTally(t)
		}
	}
}

func (s *Server) logTally(t tally) {
	event := s.opts.Logger.Warn().Int("times", t.times)
	if t.refusalSource == (refusalSource{}) {
		event.Msg("refused agents at many addresses, the last one: " + t.message)
		return
	}
	event.Stringer("from", t.from).Stringer("reason", t.reason).Msg("refused an agent again: " + t.message)
}
