package elastic

import (
	"fmt"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Nodes that do not reach the worker store of rank 0 say so and go on trying. The leader waits until it is certain that rank 0 is not just
// dead. Then it ends the round, sets aside whoever is likely to be at fault, which is not charged, and goes on without. It sets aside nobody
// whom the job needs: then it gives rank 0 to another node. Each time one node more is out of the question, so this comes to an end:
// the job ends when nobody is left who could be rank 0.

// storePatience is how long a node may try to reach the worker store before the round is ended for it. The session of a rank 0 that is dead
// ends within half of Rejoin.
func storePatience(j *Job) time.Duration { return j.Rejoin/2 + j.Rejoin/8 }

// maxUnreached is how many rounds in a row may come to nothing because rank 0 is not reached. Where it was rank 0's fault they count twice.
const maxUnreached = 6

// noteUnreached takes note of whether a participant has reached the worker store.
func (l *leader) noteUnreached(now time.Duration, p *part, u *Unreached) {
	if u == nil {
		p.unreachedSince = moment{}
		return
	}
	if at := now - u.For; !p.unreachedSince.set || at < p.unreachedSince.at {
		p.unreachedSince = moment{at, true}
	}
	l.unreached.advance(moment{p.unreachedSince.at + storePatience(l.job), true})
}

// watchStore ends the round if somebody has not reached the worker store for too long.
func (l *leader) watchStore(now time.Duration) (ended bool) {
	if !l.unreached.set || now < l.unreached.at {
		return false
	}
	l.unreached = moment{}
	for r := range l.parts {
		if p := &l.parts[r]; p.unreachedSince.set {
			l.unreached.advance(moment{p.unreachedSince.at + storePatience(l.job), true})
		}
	}
	if !l.unreached.set || now < l.unreached.at {
		return false
	}
	l.unreached = moment{}
	reporters := l.unreachedBy(now)
	l.halt(now, fmt.Sprintf("the worker store on %s, rank 0, was not reached by %s", l.hostOf(0), l.names(reporters)))
	return true
}

// unreachedBy are the participants that had tried to reach the worker store for at least half of storePatience when the round was ended.
func (l *leader) unreachedBy(ended time.Duration) (ranks []int) {
	for r := range l.parts {
		if p := &l.parts[r]; r > 0 && p.unreachedSince.set && p.seat != nil && ended-p.unreachedSince.at >= storePatience(l.job)/2 {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// names are the hosts of participants, for people.
func (l *leader) names(ranks []int) string {
	var names []string
	for _, r := range ranks[:min(len(ranks), maxNamed)] {
		names = append(names, l.hostOf(r))
	}
	if more := len(ranks) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// suspects says who is likely to be at fault where some of a round's nodes, reporters, do not reach rank 0: the ranks of those. Most of the others can
// hardly be wrong. Where there is only one other, it is the one of both that has missed more nodes, or else the one that is new.
func suspects(nodes int, reporters []int, missed func(rank int) misses, isNew func(rank int) bool) []int {
	zero, other := []int{0}, reporters[0]
	if others := nodes - 1; others > 1 {
		if 2*len(reporters) > others {
			return zero
		}
		return reporters
	}
	switch more := missed(0).compare(missed(other)); {
	case more > 0, more == 0 && isNew(0) && !isNew(other):
		return zero
	}
	return reporters
}

// judgeStore does what follows for the next round from a worker store that was not reached, and reports whether that is why this one came to
// nothing. All participants that are there have stopped.
func (l *leader) judgeStore(now time.Duration) bool {
	reporters := l.unreachedBy(l.halted.at)
	zero := &l.parts[0]
	if len(reporters) == 0 || zero.fate != stopped || zero.seat == nil || zero.seat.newer || zero.seat.report.Leaving || zero.seat.report.Silent {
		return false
	}
	l.unreachedRounds++
	suspected := l.suspected(now, reporters)
	unseen := fmt.Sprintf("%s did not reach its worker store (%s)", l.names(reporters), l.parts[reporters[0]].seat.report.Unreached.why())
	switch {
	case suspected[0] == 0:
		l.setAside(now, 0, unseen)
		l.notePair(0)
	case l.needs(reporters):
		l.news = append(l.news, fmt.Sprintf("%s is not to be rank 0: %s", l.hostOf(0), unseen))
	default:
		for _, r := range reporters {
			l.setAside(now, r, fmt.Sprintf("it did not reach the worker store on %s, rank 0 (%s)", l.hostOf(0), l.parts[r].seat.report.Unreached.why()))
		}
		l.notePair(suspected[0])
		return true
	}
	l.unreachedRounds++
	l.budget.keepFromFirst(now, l.record.Members[0].Identity, l.hostOf(0), unseen)
	return true
}

// suspected are the ranks that are likely to be at fault. Of two nodes that miss each other it lets in those that were set aside for the fault of
// the one.
func (l *leader) suspected(now time.Duration, reporters []int) []int {
	members := l.record.Members
	pair := len(members) == 2
	if pair {
		l.budget.noteMissed(now, members[0].Identity, members[1].Identity)
	}
	missed := func(rank int) misses { return l.budget.misses(now, members[rank].Identity) }
	ranks := suspects(len(members), reporters, missed, func(rank int) bool { return members[rank].New })
	if pair && missed(ranks[0]).compare(missed(1-ranks[0])) > 0 {
		l.budget.readmit(members[ranks[0]].Identity)
		for _, s := range l.seats {
			l.review(s)
		}
	}
	return ranks
}

// notePair notes because of whom one of two nodes was set aside.
func (l *leader) notePair(rank int) {
	if members := l.record.Members; len(members) == 2 {
		l.budget.asides[members[rank].Identity].by = members[1-rank].Identity
	}
}

// needs reports whether the job could not run without those participants, even with all others that are parked.
func (l *leader) needs(ranks []int) bool {
	there := l.eligible + l.reserve
	for _, r := range ranks {
		if c := l.parts[r].seat.counted; c.eligible || c.reserve {
			there--
		}
	}
	return l.job.Static || there < l.job.Min
}

// setAside sets a participant aside. Its part in the round must be over.
func (l *leader) setAside(now time.Duration, rank int, why string) {
	identity := l.record.Members[rank].Identity
	l.budget.setAside(now, identity, l.hostOf(rank), why)
	l.news = append(l.news, fmt.Sprintf("%s is set aside for %v: %s", l.hostOf(rank), l.budget.asides[identity].until()-now, why))
	if s := l.identity[identity]; s != nil {
		l.review(s)
	}
}

// endUnreached ends the job because nobody is left who could be rank 0.
func (l *leader) endUnreached(now time.Duration) {
	l.end(now, rdzv.Outcome{Ending: rdzv.EndTimeout, Restarts: l.restarts, Text: "no node is left whose worker store the others reach: check the " +
		"firewalls between the nodes, and --worker-store-port and --local-addr"})
}

// giveFirst gives rank 0 to the first member that may have it. Where none may, one of the other candidates takes the last member's place. It returns
// false where there is none.
func giveFirst(members, all []candidate, unreachable func(identity string) bool) ([]candidate, bool) {
	may := func(c candidate) bool { return !unreachable(c.node.Identity) }
	i := 0
	for i < len(members) && !may(members[i]) {
		i++
	}
	if i == len(members) {
		var other *candidate
		for j := range all {
			if c := &all[j]; may(*c) && (other == nil || c.arrived < other.arrived) {
				other = c
			}
		}
		if other == nil {
			return members, false
		}
		i--
		members[i] = *other
	}
	first := members[i]
	copy(members[1:i+1], members[:i])
	members[0] = first
	return members, true
}
