package rounds

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// formation is what the leader knows of the next round while it waits for the nodes. The zero value is that of a wait
// that has just begun.
type formation struct {
	enoughSince  OptionalTime // since when there are enough nodes
	tooFewSince  OptionalTime // since when there are too few
	recovering   bool         // there were too few nodes in this wait, so others may be on their way back
	backoffUntil OptionalTime // the earliest time to decide the round
	// useQuarantinedAt is when the round may be decided with quarantined nodes; unset if it needs none.
	useQuarantinedAt OptionalTime
}

// startForming begins the wait for the nodes of the next round.
func (l *Leader) startForming() { l.state, l.formation = forming, formation{} }

// tryForm decides the next round once its nodes are there, or gives up.
func (l *Leader) tryForm(now time.Duration) {
	f := &l.formation
	quarantined, enough := l.quarantinedToUse()
	if !enough {
		f.enoughSince, f.useQuarantinedAt, f.recovering = OptionalTime{}, OptionalTime{}, true
		f.tooFewSince.setOnce(now)
		if now >= f.tooFewSince.At+l.job.JoinTimeout {
			l.endTimeout(now, "%d of %s were there, and no more came in %s%s",
				l.participants.eligible, l.neededNodes(), FormatLeft(l.job.JoinTimeout), l.missingNodes())
		}
		return
	}
	f.tooFewSince = OptionalTime{}
	f.enoughSince.setOnce(now)
	if !l.mayUseQuarantined(now, quarantined) || !l.waitIsOver(now) {
		return
	}
	members, ok := l.chooseMembers(now, quarantined)
	if !ok {
		l.endUnreached(now)
		return
	}
	l.commitRound(now, members, l.roundNote(quarantined))
}

// waitIsOver reports whether the leader waits for no further node.
func (l *Leader) waitIsOver(now time.Duration) bool {
	f, n := &l.formation, l.participants.eligible
	allExpected := l.job.Expected > 0 && n >= l.job.Expected
	switch {
	case f.backoffUntil.Set && now < f.backoffUntil.At:
		return false
	case l.mustWaitForSessions(now, n >= l.job.Max || allExpected):
		return false
	case n >= l.job.Max:
		return true
	case l.hasRound:
		return !f.recovering || n >= len(l.record.Members) || now >= f.enoughSince.At+l.job.JoinSettle
	default:
		return allExpected || now >= f.enoughSince.At+l.job.LastCall
	}
}

// nextSize returns the size of the next round if n nodes are eligible.
func (l *Leader) nextSize(n int) int { return l.job.roundSize(min(n, l.maxMembers())) }

// maxMembers returns how many nodes the next round may have at most.
func (l *Leader) maxMembers() int {
	if l.hasRound && l.job.Grow == GrowNever {
		return max(len(l.record.Members), l.job.Min)
	}
	return l.job.Max
}

// commitRound decides the next round.
func (l *Leader) commitRound(now time.Duration, members []candidate, note string) {
	for _, m := range l.round.members {
		if m.participant == nil {
			continue
		}
		if m.participant.rank = -1; m.status != stopped { // recorded, so that a later leader knows it too
			m.participant.unstoppedRound = l.record.Round
		}
	}
	last, isNew, books := l.record.Round, l.newcomerTest(members), l.settled(now)
	books.Committed = l.history.wallNow()
	l.record = Record{
		Round: l.record.Round + 1, Restarts: l.restarts, Short: l.shortRounds, Unreached: l.unreachedRounds,
		Repeats: l.repeats, Lost: l.round.countLost(), Ledger: &books,
		Members: make([]RecordMember, len(members)),
	}
	if l.charged {
		l.record.Same = max(1, l.repeats.Same)
	}
	l.charged = false
	l.budget.saveTo(&l.record, now, l.job)
	for _, p := range l.participants.byID {
		if p.unstoppedRound >= 0 && l.mayHaveWorkers(p) {
			put(&l.record.Unstopped, p.id, p.unstoppedRound)
		}
	}
	finished := l.round.successes
	l.round = roundState{
		members: make([]roundMember, len(members)), active: len(members), present: len(members),
		startedAt: OptionalTime{now, true}, note: note,
	}
	for r, c := range members {
		p := l.participants.byID[c.id]
		p.rank, p.unstoppedRound = r, -1
		l.round.members[r].setParticipant(p)
		l.round.members[r].workers = c.node.Nproc
		l.record.Members[r] = RecordMember{
			ID: c.id, Identity: c.node.Identity, Host: c.node.Host, Role: c.node.Role, Nproc: c.node.Nproc,
			New: isNew(c.node.Identity),
		}
	}
	store := members[0].offer // copied, so that the record does not keep all members in memory
	l.record.Members[0].Store = &store
	l.writes = append(l.writes, Write{Key: RoundKey(l.record.Round), Value: l.record, Create: true})
	if last >= 0 {
		l.writes = append(l.writes, Write{Key: RoundKey(last)})
		l.forgetSuccesses(last, finished)
	}
	l.state, l.hasRound, l.inherited, l.announcements = running, true, false, nil
	l.countIdle(now)
	l.assignRanks()
	// The members come first: what a spare waits for depends on how many others could be in a round.
	for _, members := range []bool{true, false} {
		for _, p := range l.participants.byID {
			if (p.rank >= 0) == members {
				l.review(p)
			}
		}
	}
}

// A quarantined node stays out of rounds only while the job can run without it. Below min the leader uses it all the
// same: a job that stands still is worse than one that may lose the node again. The leader pauses before each such
// round. The pause grows with the losses, so that a node that is lost again and again does not make the others restart
// all the time, and it gives other nodes time to come.

// quarantinedToUse reports whether there are enough nodes for a round, and which quarantined nodes it would need.
func (l *Leader) quarantinedToUse() (quarantined []*participant, enough bool) {
	missing := l.job.Min - l.participants.eligible
	switch {
	case missing > l.participants.quarantined:
		return nil, false
	case l.job.Static:
		_, quarantined, enough = l.staticMembers()
		return quarantined, enough
	case missing > 0:
		quarantined = l.quarantinedByEnd()[:missing]
	}
	return quarantined, true
}

// chooseMembers returns the members of the next round in rank order; false if no candidate can be rank 0. The caller
// has checked that there are enough nodes, including the given quarantined ones.
func (l *Leader) chooseMembers(now time.Duration, quarantined []*participant) ([]candidate, bool) {
	unreachable := func(identity string) bool { return l.budget.isUnreachable(now, identity) }
	if l.job.Static {
		members, _, _ := l.staticMembers()
		return members, !unreachable(members[0].node.Identity)
	}
	all := l.eligibleWith(quarantined)
	return chooseRank0(rankMembers(l.record.Members, all, l.nextSize(len(all))), all, unreachable)
}

// eligibleWith lists the eligible participants and those in quarantined.
func (l *Leader) eligibleWith(quarantined []*participant) []candidate {
	out := make([]candidate, 0, l.participants.eligible+len(quarantined))
	for _, p := range l.participants.byID {
		if p.counted.eligible {
			out = append(out, p.candidate())
		}
	}
	for _, p := range quarantined {
		out = append(out, p.candidate())
	}
	return out
}

func (p *participant) candidate() candidate {
	return candidate{p.id, p.arrived, p.report.Node, p.report.Store}
}

// quarantinedByEnd lists the quarantined participants, the one whose quarantine ends first at the front.
func (l *Leader) quarantinedByEnd() []*participant {
	out := make([]*participant, 0, l.participants.quarantined)
	for _, p := range l.participants.byID {
		if p.counted.quarantined {
			out = append(out, p)
		}
	}
	end := func(p *participant) time.Duration { return l.budget.quarantinedUntil[p.report.Node.Identity] }
	slices.SortFunc(out, func(a, b *participant) int {
		return cmp.Or(cmp.Compare(end(a), end(b)), cmp.Compare(a.arrived, b.arrived))
	})
	return out
}

// staticMembers returns the nodes of a round with static ranks. It uses quarantined nodes only for ranks that no other
// node has.
func (l *Leader) staticMembers() (members []candidate, quarantined []*participant, ok bool) {
	if members, ok = staticOrder(l.eligibleWith(nil), l.job.Max); ok {
		return members, nil, true
	}
	for _, p := range l.quarantinedByEnd() {
		if hint := p.report.Node.Hint; hint >= 0 && hint < len(members) && members[hint].id == "" {
			members[hint] = p.candidate()
			quarantined = append(quarantined, p)
		}
	}
	return members, quarantined, !slices.ContainsFunc(members, func(c candidate) bool { return c.id == "" })
}

// mayUseQuarantined reports whether the pause before a round with these quarantined nodes is over. The pause starts
// when such a round becomes possible.
func (l *Leader) mayUseQuarantined(now time.Duration, quarantined []*participant) bool {
	at := &l.formation.useQuarantinedAt
	if len(quarantined) == 0 {
		*at = OptionalTime{}
		return true
	}
	if !at.Set {
		pause := time.Duration(0)
		for _, p := range quarantined {
			pause = max(pause, l.budget.quarantinePause(now, p.report.Node.Identity, l.job))
		}
		*at = OptionalTime{now + pause, true}
	}
	return now >= at.At
}

// willUseQuarantined reports whether the next round will have quarantined nodes unless others come.
func (l *Leader) willUseQuarantined() bool {
	return l.state == forming && l.formation.useQuarantinedAt.Set
}

// roundNote returns what all members of the next round should know of it; empty if there is nothing.
func (l *Leader) roundNote(quarantined []*participant) string {
	texts := l.announcements
	if len(quarantined) > 0 {
		var names []string
		for _, p := range quarantined[:min(len(quarantined), maxNamed)] {
			node := p.report.Node
			names = append(names, fmt.Sprintf("%s (%s)", node.Host, l.budget.quarantineReason(node.Identity)))
		}
		texts = append(texts, fmt.Sprintf("the job needs %s, so it uses quarantined ones: %s",
			l.neededNodes(), strings.Join(names, ", ")))
	}
	return joinSome(texts, "; ")
}

// joinSome joins at most maxNamed texts and says how many more there are.
func joinSome(texts []string, sep string) string {
	if more := len(texts) - maxNamed; more > 0 {
		texts = append(slices.Clip(texts[:maxNamed]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, sep)
}

// endQuarantines readmits the nodes whose quarantine is over.
func (l *Leader) endQuarantines(now time.Duration) {
	for _, identity := range l.budget.endQuarantines(now) {
		if p := l.participants.byIdentity[identity]; p != nil {
			l.review(p)
		}
	}
}
