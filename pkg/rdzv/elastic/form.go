package elastic

import (
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// enterForming begins the wait for the nodes of the next round.
func (l *leader) enterForming() {
	l.state, l.enough, l.tooFew, l.backoff, l.resort, l.recovered = forming, moment{}, moment{}, moment{}, moment{}, false
}

// form decides the next round when the nodes for it are there, or gives up.
func (l *leader) form(now time.Duration) {
	candidates, parked, enough := l.candidates()
	if !enough {
		l.enough, l.resort, l.recovered = moment{}, moment{}, true
		l.tooFew.begin(now)
		if now >= l.tooFew.at+l.job.JoinTimeout {
			l.end(now, rdzv.Outcome{Ending: rdzv.EndTimeout, Restarts: l.restarts, Text: fmt.Sprintf(
				"%d of at least %d nodes were there, and no more came in %v", l.eligible, l.job.Min, l.job.JoinTimeout)})
		}
		return
	}
	l.tooFew = moment{}
	l.enough.begin(now)
	if !l.mayUse(now, parked) || !l.complete(now) {
		return
	}
	members, ok := candidates(now)
	if !ok {
		l.endUnreached(now)
		return
	}
	l.remark = l.remarks(parked)
	l.commit(now, members)
}

// complete reports whether nobody else is to be waited for.
func (l *leader) complete(now time.Duration) bool {
	e := l.eligible
	switch {
	case l.backoff.set && now < l.backoff.at:
		return false
	case l.held(now, e >= l.job.Max || l.job.Expected > 0 && e >= l.job.Expected):
		return false
	case e >= l.job.Max:
		return true
	case l.rounds:
		return !l.recovered || e >= len(l.record.Members) || now >= l.enough.at+l.job.JoinSettle
	default:
		return l.job.Expected > 0 && e >= l.job.Expected || now >= l.enough.at+l.job.LastCall
	}
}

// limit is how many nodes the next round may have.
func (l *leader) limit() int {
	if l.rounds && l.job.Grow == GrowNever {
		return max(len(l.record.Members), l.job.Min)
	}
	return l.job.Max
}

// commit decides the next round.
func (l *leader) commit(now time.Duration, members []candidate) {
	for _, p := range l.parts {
		if p.seat == nil {
			continue
		}
		if p.seat.rank = -1; p.fate != stopped { // the next leader must know it, too
			p.seat.fenced = l.record.Round
		}
	}
	last, isNew := l.record.Round, l.newcomers(members)
	l.record = Record{Round: l.record.Round + 1, Restarts: l.restarts, Short: l.short, Unreached: l.unreachedRounds, Members: make([]Participant, len(members))}
	l.budget.store(now, &l.record, l.job)
	for _, s := range l.seats {
		if s.fenced >= 0 && l.busy(s) {
			if l.record.Fenced == nil {
				l.record.Fenced = map[coord.SessionID]int{}
			}
			l.record.Fenced[s.id] = s.fenced
		}
	}
	l.parts = make([]part, len(members))
	l.active, l.done, l.alive = len(members), 0, len(members)
	l.stuck, l.stuckSince = 0, moment{}
	for r, c := range members {
		s := l.seats[c.id]
		s.rank, s.fenced = r, -1
		l.parts[r].seat = s
		l.record.Members[r] = Participant{ID: c.id, Identity: c.node.Identity, Role: c.node.Role, Nproc: c.node.Nproc, New: isNew(c.node.Identity)}
	}
	first := members[0].offer // a copy, which does not keep all members
	l.record.Members[0].Store = &first
	l.state, l.started, l.unreached, l.news = running, moment{now, true}, moment{}, nil
	l.blame, l.disturbed, l.settle, l.halted, l.grown = blame{}, "", moment{}, moment{}, moment{}
	l.out = append(l.out, write{key: roundKey(l.record.Round), value: l.record, create: true})
	if last >= 0 {
		l.out = append(l.out, write{key: roundKey(last)})
	}
	l.rounds = true
	l.handOut()
	for _, s := range l.seats {
		l.review(s)
	}
}

// release lets nodes back in whose losses are long ago.
func (l *leader) release(now time.Duration) {
	for _, identity := range l.budget.release(now) {
		if s := l.identity[identity]; s != nil {
			l.review(s)
		}
	}
}

// sessions lists the seats' ids, for the leader's own use in a resync.
func (l *leader) sessions() []coord.SessionID {
	ids := make([]coord.SessionID, 0, len(l.seats))
	for id := range l.seats {
		ids = append(ids, id)
	}
	return ids
}
