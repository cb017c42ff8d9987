package elastic

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Who waits for long is told how it stands: firstNote after the wait began, then after pauses that double, up to maxNotePause. A spare of a job
// that runs, for which nothing is missing, is told less and less often, up to maxSparePause.
const (
	firstNote     = 5 * time.Second
	maxNotePause  = time.Minute
	maxSparePause = time.Hour
)

// maxNoted is how many nodes are told at most: of more than that, the first to come. Each note is a write and a message; nobody reads the logs of
// thousands of nodes, and that of the first is the one that people look at.
const maxNoted = 1000

// nextNote is the pause before the next note, after so many.
func nextNote(said int, most time.Duration) time.Duration {
	return min(most, firstNote<<min(said, 20))
}

// wait is what a seat has been told of the wait it is in.
type wait struct {
	idle  bool   // it has no workers, and waits for a round
	began moment // set by the first decide that sees it wait
	next  moment // when it is to be told how it stands; in whole seconds, so that many can be told in one commit
	said  int
}

// queue notes whether a seat waits. From when, decide will know.
func (l *leader) queue(s *seat, idle bool) {
	switch {
	case !idle:
		s.wait = wait{}
	case !s.wait.idle:
		s.wait.idle = true
		l.line = append(l.line, s)
	}
}

// ring tells those who have waited for long how it stands. It costs nothing until the bell rings.
func (l *leader) ring(now time.Duration) {
	for _, s := range l.line {
		if s.wait.idle && !s.wait.began.set {
			s.wait.began, s.wait.next = moment{now, true}, nextSecond(now+firstNote)
			l.bell.advance(s.wait.next)
		}
	}
	l.line = nil
	all := l.prompt
	if l.ended != nil || !all && (!l.bell.set || now < l.bell.at) {
		return
	}
	l.bell, l.prompt = moment{}, false
	most := maxNotePause
	if l.state == running {
		most = maxSparePause
	}
	common := l.common(now)
	for _, s := range l.noted() {
		if all || now >= s.wait.next.at {
			s.wait.said++
			s.wait.next = nextSecond(now + nextNote(s.wait.said, most))
			l.tell(s, Answer{Kind: Wait, Note: cmp.Or(l.alone(now, s), common), Next: s.wait.next.at - now})
		}
		l.bell.advance(s.wait.next)
	}
}

// nextSecond is the first whole second from then on.
func nextSecond(at time.Duration) moment {
	return moment{(at + time.Second - 1).Truncate(time.Second), true}
}

// advance makes it the earlier one of both.
func (m *moment) advance(to moment) {
	if !m.set || to.set && to.at < m.at {
		*m = to
	}
}

// noted are the seats that wait and may be told, the first to come first.
func (l *leader) noted() []*seat {
	var all []*seat
	for _, s := range l.seats {
		if s.wait.began.set {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *seat) int { return cmp.Compare(a.arrived, b.arrived) })
	return all[:min(len(all), maxNoted)]
}

// alone says why one seat waits, though others need not; empty if it waits for what all do.
func (l *leader) alone(now time.Duration, s *seat) string {
	if l.budget.isParked(s.report.Node.Identity) && !l.resorting() {
		return l.budget.parkedNote(s.report.Node.Identity) + ", for another " + seconds(l.budget.parkedUntil[s.report.Node.Identity]-now)
	}
	if why := l.spare(); why != "" {
		return why + ", for " + seconds(now-s.wait.began.at) + " so far"
	}
	return ""
}

// parkedNote is for a node that could wait in line, but is not used.
func (b *budget) parkedNote(identity string) string {
	if a := b.asides[identity]; a != nil && a.times > 0 && a.until() >= b.parkedUntil[identity] {
		return "this node is set aside, and is used only if the job cannot run without it: " + a.why
	}
	return "this node was lost too often and is used only if the job cannot run without it"
}

// spare says why no further node gets into the round that runs; empty if one does.
func (l *leader) spare() string {
	switch {
	case l.state != running:
		return ""
	case l.done > 0:
		return "some nodes of the job have finished already"
	case len(l.parts) >= l.limit():
		return fmt.Sprintf("the job has its %d nodes: this one is a spare", len(l.parts))
	case l.job.Grow != GrowNow:
		return "the job is running: this node joins at its next restart"
	}
	return ""
}

// common says what all nodes wait for that could be in the next round, and for how long.
func (l *leader) common(now time.Duration) string {
	switch e := l.eligible; {
	case l.state == running && l.rest.set:
		return "newcomers have disturbed the job a moment ago: it takes in others in " + seconds(l.rest.at-now)
	case l.state == running:
		return "the job is running: it begins a round with the nodes that have come in " + seconds(l.settle.at+l.job.JoinSettle-now)
	case l.state == halting:
		return fmt.Sprintf("%s to stop their workers, for %s more at most", l.stopping(), seconds(l.halted.at+l.job.Rejoin-now))
	case l.state == forming && !l.tooFew.set && l.held(now, e >= l.job.Max):
		return fmt.Sprintf("%s in; the store is new, and the round begins in %s, when no worker of an earlier store of this run can be left",
			areIn(e), seconds(l.heldUntil(e >= l.job.Max).at-now))
	case l.tooFew.set:
		return fmt.Sprintf("%d of %s nodes are in%s; the job is given up in %s", e, l.needed(), l.missing(), seconds(l.tooFew.at+l.job.JoinTimeout-now))
	case l.resorting() && now < l.resort.at:
		return fmt.Sprintf("%d of %s nodes are in%s; in %s the round begins with nodes that it would keep out", e, l.needed(), l.missing(), seconds(l.resort.at-now))
	case l.backoff.set && now < l.backoff.at:
		return fmt.Sprintf("the next round begins in %s: the last %d rounds failed within --min-uptime (%v)",
			seconds(l.backoff.at-now), l.short, l.job.MinUptime)
	case l.rounds:
		return fmt.Sprintf("%s in; the round begins in %s unless more come", areIn(e), seconds(l.enough.at+l.job.JoinSettle-now))
	default:
		return fmt.Sprintf("%s in, %d at most%s; the round begins in %s without more",
			areIn(e), l.job.Max, l.missing(), seconds(l.enough.at+l.job.LastCall-now))
	}
}

// areIn says that n nodes are.
func areIn(n int) string {
	if n == 1 {
		return "1 node is"
	}
	return fmt.Sprintf("%d nodes are", n)
}

// needed is how many nodes a round must have.
func (l *leader) needed() string {
	if l.job.Static || l.job.Min == l.job.Max {
		return strconv.Itoa(l.job.Max)
	}
	return "at least " + strconv.Itoa(l.job.Min)
}

// maxNamed is how many are named in a note.
const maxNamed = 8

// stopping names nodes whose workers are not stopped yet.
func (l *leader) stopping() string {
	var names []string
	for r := range l.parts {
		if l.parts[r].fate == active && len(names) < maxNamed {
			names = append(names, l.hostOf(r))
		}
	}
	text := "waiting for " + strings.Join(names, ", ")
	if more := l.active - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// missing names the ranks that nobody has who is in, where that is known: how many nodes are to come, and which ranks they were given.
func (l *leader) missing() string {
	n := l.job.Expected
	if l.job.Static || l.job.Min == l.job.Max {
		n = l.job.Max
	}
	here := make([]bool, n)
	for _, s := range l.seats {
		hint := s.report.Node.Hint
		switch {
		case !s.counted.eligible:
		case hint >= 0 && hint < n && (!here[hint] || l.job.Static):
			here[hint] = true
		case !l.job.Static:
			return "" // it has none, or another's
		}
	}
	if text := absent(here); text != "" {
		return ", missing node ranks " + text
	}
	return ""
}

// absent lists the numbers that are not there, like "2, 5-7".
func absent(here []bool) string {
	var texts []string
	for i := 0; i < len(here); i++ {
		if here[i] {
			continue
		}
		if len(texts) == maxNamed {
			texts = append(texts, "...")
			break
		}
		first := i
		for i+1 < len(here) && !here[i+1] {
			i++
		}
		if texts = append(texts, strconv.Itoa(first)); i > first {
			texts[len(texts)-1] += "-" + strconv.Itoa(i)
		}
	}
	return strings.Join(texts, ", ")
}

// seconds writes a duration for people, rounded up.
func seconds(d time.Duration) string { return nextSecond(max(0, d)).at.String() }
