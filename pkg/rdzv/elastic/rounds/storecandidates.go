package rounds

import (
	"cmp"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord/group"
)

// StoreCandidates returns the agents that can help to keep the store, members of the round by rank first.
func (l *Leader) StoreCandidates() []group.Candidate {
	able := make([]*participant, 0, len(l.storeMembers))
	for id := range l.storeMembers {
		if p := l.participants.byID[id]; p != nil && p.stays() {
			able = append(able, p)
		}
	}
	slices.SortFunc(able, func(a, b *participant) int {
		return cmp.Or(cmp.Compare(uint(a.rank), uint(b.rank)), cmp.Compare(a.arrived, b.arrived)) // -1 comes last
	})
	candidates := make([]group.Candidate, len(able))
	for i, p := range able {
		candidates[i] = group.Candidate{Addr: p.report.StoreMember, Process: string(p.id)}
	}
	return candidates
}

// AddrsOf returns the candidates' addresses.
func AddrsOf(candidates []group.Candidate) []string {
	addrs := make([]string, len(candidates))
	for i, c := range candidates {
		addrs[i] = c.Addr
	}
	return addrs
}

// Staying counts the agents that neither leave nor were superseded.
func (l *Leader) Staying() int {
	n := 0
	for _, p := range l.participants.byID {
		if p.stays() {
			n++
		}
	}
	return n
}

// stays reports whether the agent neither leaves nor was superseded by another one.
func (p *participant) stays() bool { return !p.report.Leaving && !p.superseded }

// AllLeave reports whether all agents of a run that had a round have left or are about to.
func (l *Leader) AllLeave() bool {
	for _, p := range l.participants.byID {
		if !p.report.Leaving {
			return false
		}
	}
	return l.hasRound
}

// recordStoreMember records whether an agent can help to keep the store.
func (l *Leader) recordStoreMember(p *participant) {
	if p.report.StoreMember == "" {
		l.removeStoreMember(p)
		return
	}
	put(&l.storeMembers, p.id, true)
}

// removeStoreMember records that an agent cannot help to keep the store any more.
func (l *Leader) removeStoreMember(p *participant) {
	l.mayInvite = l.mayInvite || l.storeMembers[p.id]
	delete(l.storeMembers, p.id)
}

// inviteWaiting asks agents that wait while a round runs, spares and quarantined nodes, to help to keep the store, if
// fewer agents than storeInvites can. It costs O(1) unless that may have changed.
func (l *Leader) inviteWaiting(now time.Duration) {
	missing := l.storeInvites - len(l.storeMembers)
	if !l.mayInvite || l.state != running || missing <= 0 {
		return
	}
	l.mayInvite = false
	for _, p := range l.noticeRecipients() {
		if missing == 0 {
			return
		}
		if p.invited || l.storeMembers[p.id] {
			continue
		}
		p.invited = true
		missing--
		note := p.lastAnswer.Note
		if p.lastAnswer.Kind != Wait {
			note = cmp.Or(l.ownReason(now, p), l.commonReason(now))
		}
		l.reply(p, Answer{Kind: Wait, Note: note})
	}
}
