package elastic

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A parked node is kept out of rounds only while the job can run without it: below min it is used all the same, since a job that stands still
// is worse than one that may lose the node again. A pause before each such round, which grows with the losses, keeps a node that is
// lost again and again from making the others restart all the time, and gives others time to come.

// candidates says whether there are nodes enough for a round, and finds those that it would have, in rank order, and which of them are parked.
// members returns false where none of them can be rank 0.
func (l *leader) candidates() (members func(now time.Duration) ([]candidate, bool), parked []*seat, enough bool) {
	if l.eligible+l.reserve < l.job.Min {
		return nil, nil, false
	}
	if l.job.Static {
		ranked, used, ok := l.staticMembers()
		return func(now time.Duration) ([]candidate, bool) {
			return ranked, ok && !l.budget.isUnreachable(now, ranked[0].node.Identity)
		}, used, ok
	}
	if missing := l.job.Min - l.eligible; missing > 0 {
		parked = l.firstFree()[:missing]
	}
	return func(now time.Duration) ([]candidate, bool) {
		all := l.withParked(parked)
		return giveFirst(rank(l.record.Members, all, l.limit()), all, func(identity string) bool { return l.budget.isUnreachable(now, identity) })
	}, parked, true
}

// withParked lists the seats that are eligible, and those.
func (l *leader) withParked(parked []*seat) []candidate {
	out := make([]candidate, 0, l.eligible+len(parked))
	for _, s := range l.seats {
		if s.counted.eligible {
			out = append(out, s.candidate())
		}
	}
	for _, s := range parked {
		out = append(out, s.candidate())
	}
	return out
}

func (s *seat) candidate() candidate {
	return candidate{s.id, s.arrived, s.report.Node, s.report.Store}
}

// firstFree lists the parked seats, those first that would be free first.
func (l *leader) firstFree() []*seat {
	out := make([]*seat, 0, l.reserve)
	for _, s := range l.seats {
		if s.counted.reserve {
			out = append(out, s)
		}
	}
	until := func(s *seat) time.Duration { return l.budget.parkedUntil[s.report.Node.Identity] }
	slices.SortFunc(out, func(a, b *seat) int {
		return cmp.Or(cmp.Compare(until(a), until(b)), cmp.Compare(a.arrived, b.arrived))
	})
	return out
}

// staticMembers finds the nodes of a round with static ranks: parked ones only for ranks that nobody else has.
func (l *leader) staticMembers() (ranked []candidate, parked []*seat, ok bool) {
	if ranked, ok = staticOrder(l.withParked(nil), l.job.Max); ok {
		return ranked, nil, true
	}
	for _, s := range l.firstFree() {
		if h := s.report.Node.Hint; h >= 0 && h < len(ranked) && ranked[h].id == "" {
			ranked[h] = s.candidate()
			parked = append(parked, s)
		}
	}
	return ranked, parked, !slices.ContainsFunc(ranked, func(c candidate) bool { return c.id == "" })
}

// mayUse reports whether the pause before a round with parked nodes is over. It begins when such a round is possible.
func (l *leader) mayUse(now time.Duration, parked []*seat) bool {
	if len(parked) == 0 {
		l.resort = moment{}
		return true
	}
	if !l.resort.set {
		pause := time.Duration(0)
		for _, s := range parked {
			pause = max(pause, l.budget.pause(now, s.report.Node.Identity, l.job))
		}
		l.resort = moment{now + pause, true}
	}
	return now >= l.resort.at
}

// pause is how long the others wait before they use that node though it is parked.
func (b *budget) pause(now time.Duration, identity string, j *Job) time.Duration {
	losses := 0
	for _, at := range b.losses[identity] {
		if now-at < lossWindow {
			losses++
		}
	}
	return min(maxBackoff, minBackoff<<min(max(0, losses-j.MaxNodeLosses), 16))
}

// resorting reports whether the next round will have parked nodes, unless others come.
func (l *leader) resorting() bool { return l.state == forming && l.resort.set }

// remarks are what all nodes of a round are told of it; empty for nothing.
func (l *leader) remarks(parked []*seat) string {
	texts := l.news
	if len(parked) > 0 {
		var names []string
		for _, s := range parked[:min(len(parked), maxNamed)] {
			names = append(names, fmt.Sprintf("%s (%s)", s.report.Node.Host, l.budget.whyParked(s.report.Node.Identity)))
		}
		texts = append(texts, fmt.Sprintf("the job needs %s nodes, and uses what it would keep out: %s", l.needed(), strings.Join(names, ", ")))
	}
	if more := len(texts) - maxNamed; more > 0 {
		texts = append(texts[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}
