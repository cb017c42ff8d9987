package coord

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"time"
)

// refusals decides which refusals are logged one by one: the first of each address and reason at once, the next ones
// as one line with their number for each interval. Its zero value is ready. It does not bound what is refused, only
// what is said about it.
type refusals struct {
	tallies        map[refusalSource]*tally
	summaryRunning bool // sumUpRefusals runs
}

const (
	// refusalInterval is how often further refusals of one address are summed up.
	refusalInterval = time.Minute
	// maxTallies bounds the addresses that are told apart, and so the lines of an interval.
	maxTallies = 16
)

// refusalSource is who is refused, and why. The zero value stands for all addresses beyond maxTallies.
type refusalSource struct {
	from   netip.Addr
	reason Reason
}

// tally counts the refusals of one source since its last line in the log.
type tally struct {
	refusalSource
	times int
	line  string        // of the last refusal
	until time.Duration // when the interval ends
}

// add takes a refusal into account. It reports whether the refusal is to be logged now.
func (r *refusals) add(source refusalSource, line string, now time.Duration) bool {
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
	if t.line = line; !first {
		t.times++
	}
	return first
}

// due returns what is to be summed up by now, in a fixed order, and begins another interval for it. A source that was
// silent for an interval is forgotten, so that its next refusal is logged at once.
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

// next returns when due may have something to say; false: there is nothing to wait for.
func (r *refusals) next() (at time.Duration, ok bool) {
	for _, t := range r.tallies {
		if !ok || t.until < at {
			at, ok = t.until, true
		}
	}
	return at, ok
}

// noteRefusal counts a refusal, and logs it or leaves it to the next summary.
func (s *Server) recordRefusal(nc net.Conn, no refusal) {
	source := refusalSource{from: remoteAddr(nc), reason: no.reason}
	s.mu.Lock()
	s.stats.Refused++
	now := time.Since(s.start)
	first := s.refusals.add(source, no.line, now)
	if !s.refusals.summaryRunning && !s.closed {
		s.refusals.summaryRunning = true
		s.running.Go(s.logRefusalSummaries)
	}
	s.mu.Unlock()
	if first {
		s.opts.Logger.Warn().Stringer("from", nc.RemoteAddr()).Stringer("reason", no.reason).Msg("agent is refused: " + no.line)
	}
}

// sumUpRefusals logs how many more refusals there were, until an interval has passed without any, or the store ends.
func (s *Server) logRefusalSummaries() {
	for open := true; open; {
		s.mu.Lock()
		at, some := s.refusals.next()
		s.refusals.summaryRunning = some
		s.mu.Unlock()
		if !some {
			return
		}
		select {
		case <-time.After(at - time.Since(s.start)):
		case <-s.stop:
			open = false // the last summary is due now
		}
		now := time.Since(s.start)
		if !open {
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
	line := s.opts.Logger.Warn().Int("times", t.times)
	if t.refusalSource == (refusalSource{}) {
		line.Msg("agents at many addresses were refused, the last one: " + t.line)
		return
	}
	line.Stringer("from", t.from).Stringer("reason", t.reason).Msg("agent was refused again: " + t.line)
}

// remoteAddr is a client's address without its port; the zero value if that is no IP address.
func remoteAddr(nc net.Conn) netip.Addr {
	a, ok := nc.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return a.AddrPort().Addr().Unmap()
}
