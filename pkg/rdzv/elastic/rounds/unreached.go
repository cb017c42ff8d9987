package rounds

import (
	"fmt"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
)

// Nodes that do not reach the worker store of rank 0 report so and keep trying. The leader waits until it is certain
// that rank 0 is not simply dead. Then it ends the round and quarantines the nodes that are likely at fault, which is
// not charged, and goes on without them. It does not quarantine nodes that the job needs; then another node becomes
// rank 0. Each time one more node is ruled out, so this terminates: the job ends when no node can be rank 0, or after
// maxUnreached.

// storeTimeout is how long a node may try to reach the worker store before the leader ends the round for it. The
// session of a dead rank 0 ends sooner, within half of Rejoin.
func storeTimeout(j *Job) time.Duration { return j.Rejoin/2 + j.Rejoin/8 }

// maxUnreached ends the job after so many rounds in a row in which rank 0 was not reached. A round counts twice unless
// the nodes that did not reach rank 0 were quarantined for it.
const maxUnreached = 6

// maxReason is how many bytes of an error's text a report or a message holds.
const maxReason = 300

func truncateReason(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}

// reason returns the error of the last attempt, for people.
func (u *Unreached) reason() string {
	if u == nil || u.Why == "" {
		return "no reason given"
	}
	return u.Why
}

// StoreUnreached records that the agent has tried in vain for that long to reach its round's worker store. Only the
// first call makes a report due; the leader learns the final duration from the next report.
func (m *Member) StoreUnreached(tried time.Duration, why string) {
	if m.state != busy {
		return
	}
	first := m.report.Unreached == nil
	m.report.Unreached = &Unreached{For: tried, Why: truncateReason(why)}
	m.dirty = m.dirty || first
}

// StoreReached records that the agent has reached the worker store.
func (m *Member) StoreReached() {
	if m.state == busy && m.report.Unreached != nil {
		m.report.Unreached, m.dirty = nil, true
	}
}

// recordUnreached records whether a member has reached the worker store.
func (l *Leader) recordUnreached(now time.Duration, m *roundMember, u *Unreached) {
	if u == nil {
		m.unreachedSince = OptionalTime{}
		return
	}
	m.unreachedSince.TakeEarlier(OptionalTime{now - u.For, true})
	l.round.storeDeadline.TakeEarlier(m.unreachedSince.add(storeTimeout(l.job)))
}

// checkWorkerStore ends the round if a member has not reached the worker store for storeTimeout.
func (l *Leader) checkWorkerStore(now time.Duration) (halted bool) {
	deadline := &l.round.storeDeadline
	if !deadline.Set || now < deadline.At {
		return false
	}
	*deadline = OptionalTime{} // the member that it is about may have reached the store since
	for rank := range l.round.members {
		if m := &l.round.members[rank]; m.unreachedSince.Set {
			deadline.TakeEarlier(m.unreachedSince.add(storeTimeout(l.job)))
		}
	}
	if !deadline.Set || now < deadline.At {
		return false
	}
	*deadline = OptionalTime{}
	reporters := l.unreachedReporters(now)
	// The Halt makes failures uncharged for a later leader too, which may not know that rank 0 was not reached.
	l.round.unchargedSince = OptionalTime{now, true}
	l.haltRound(now, fmt.Sprintf("%s did not reach the worker store on %s, rank 0", l.hostNames(reporters), l.hostOf(0)))
	return true
}

// unreachedReporters returns the ranks of the members that had tried to reach the worker store for at least half of
// storeTimeout when the round was ended.
func (l *Leader) unreachedReporters(haltedAt time.Duration) (ranks []int) {
	for rank := range l.round.members {
		m := &l.round.members[rank]
		tried := m.unreachedSince.Set && haltedAt-m.unreachedSince.At >= storeTimeout(l.job)/2
		if rank > 0 && tried && m.participant != nil {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// hostNames lists the hosts of members, for people.
func (l *Leader) hostNames(ranks []int) string {
	names := make([]string, len(ranks))
	for i, r := range ranks {
		names[i] = l.hostOf(r)
	}
	return joinSome(names, ", ")
}

// suspects returns the ranks of the members likely to be at fault if the reporters do not reach rank 0. If most of the
// other members report it, rank 0 is at fault, otherwise the reporters. In a round of two, the one that has missed more
// nodes is at fault, then the one that is new, then the reporter.
func suspects(nodes int, reporters []int, missed func(rank int) missCount, isNew func(rank int) bool) []int {
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

// judgeWorkerStore decides what follows if the round's worker store was not reached, and reports whether the round
// failed for that reason. All members that are still there have stopped.
func (l *Leader) judgeWorkerStore(now time.Duration) bool {
	reporters := l.unreachedReporters(l.round.haltedAt.At)
	zero := &l.round.members[0]
	if p := zero.participant; len(reporters) == 0 || zero.status != stopped || p == nil || p.superseded ||
		p.report.Leaving || p.report.Silent {
		return false
	}
	l.unreachedRounds++
	suspected := l.suspected(now, reporters)
	why := l.unreachedReason(reporters[0])
	fault := fmt.Sprintf("%s did not reach its worker store (%s)", l.hostNames(reporters), why)
	switch {
	case suspected[0] == 0:
		l.quarantineMember(now, 0, fault)
		l.recordPair(0)
	case l.areNeeded(reporters):
		l.announcements = append(l.announcements, fmt.Sprintf("%s cannot be rank 0: %s", l.hostOf(0), fault))
	default:
		for _, rank := range reporters {
			l.quarantineMember(now, rank, fmt.Sprintf("it did not reach the worker store on %s, rank 0 (%s)",
				l.hostOf(0), l.unreachedReason(rank)))
		}
		l.recordPair(suspected[0])
		return true
	}
	l.unreachedRounds++
	l.budget.recordUnreachable(now, l.record.Members[0].Identity, l.hostOf(0), fault)
	return true
}

// unreachedReason returns why a member did not reach the worker store.
func (l *Leader) unreachedReason(rank int) string {
	return l.round.members[rank].participant.report.Unreached.reason()
}

// suspected records what members missed and returns the ranks of those likely to be at fault. In a round of two, if the
// suspect has missed more nodes than the other member, it ends the quarantines of nodes that had missed the suspect.
func (l *Leader) suspected(now time.Duration, reporters []int) []int {
	members := l.record.Members
	isPair := len(members) == 2
	if isPair {
		l.budget.recordMissed(now, members[0].Identity, members[1].Identity)
	}
	missed := func(rank int) missCount { return l.budget.misses(now, members[rank].Identity) }
	ranks := suspects(len(members), reporters, missed, func(rank int) bool { return members[rank].New })
	if isPair && missed(ranks[0]).compare(missed(1-ranks[0])) > 0 {
		l.budget.readmit(now, members[ranks[0]].Identity, l.job)
		for _, p := range l.participants.byID {
			l.review(p)
		}
	}
	return ranks
}

// recordPair records, in a round of two, which other node the quarantined one did not reach.
func (l *Leader) recordPair(rank int) {
	if members := l.record.Members; len(members) == 2 {
		l.budget.faults[members[rank].Identity].pairedWith = members[1-rank].Identity
	}
}

// areNeeded reports whether the job could not run without those members, even with all quarantined nodes. With static
// ranks it needs every member.
func (l *Leader) areNeeded(ranks []int) bool {
	available := l.participants.eligible + l.participants.quarantined
	for _, rank := range ranks {
		if c := l.round.members[rank].participant.counted; c.eligible || c.quarantined {
			available--
		}
	}
	return l.job.Static || available < l.job.Min
}

// quarantineMember quarantines a member of a round that has ended.
func (l *Leader) quarantineMember(now time.Duration, rank int, reason string) {
	identity, host := l.record.Members[rank].Identity, l.hostOf(rank)
	l.budget.quarantine(now, identity, host, reason)
	duration := seconds.Format(l.budget.faults[identity].quarantineEnd() - now)
	l.announcements = append(l.announcements, fmt.Sprintf("%s is quarantined for %s: %s", host, duration, reason))
	if p := l.participants.byIdentity[identity]; p != nil {
		l.review(p)
	}
}

// endUnreached ends the job because no node is left that could be rank 0, or because too many rounds have failed.
func (l *Leader) endUnreached(now time.Duration) {
	l.endTimeout(now, "no node is left whose worker store the others reach: check the firewalls between the nodes, and "+
		"--worker-store-port and --local-addr")
}
