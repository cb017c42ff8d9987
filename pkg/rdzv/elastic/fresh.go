package elastic

import (
	"time"

	"github.com/elasticrun/elasticrun/internal/boottime"
)

// FreshStore describes a store that began without the sessions of an earlier store of the run, for example because its
// process was killed and started again. Agents of the earlier store may be cut off, and their workers live until their
// sessions would have expired, which the new store does not know.
type FreshStore struct {
	// CreatedAt is when the store began, on the clock of package boottime.
	CreatedAt time.Duration
	// HasPredecessor says that there was, or may have been, an earlier store.
	HasPredecessor bool
	// PredecessorEnd is when the earlier store had ended at the latest, on the clock of package boottime.
	PredecessorEnd time.Duration
}

// storeHistory is what a leader knows of earlier stores, on the leader's clock. The zero value stands for a store that
// keeps its sessions.
type storeHistory struct {
	createdAt      optionalTime // when the store began without sessions; unset if it keeps them
	predecessorEnd optionalTime // when an earlier store had ended at the latest; unset if none is known
}

// history converts f to the clock of a leader that begins now.
func (f *FreshStore) history(now time.Duration) storeHistory {
	if f == nil {
		return storeHistory{}
	}
	origin := now - boottime.Now()
	return storeHistory{
		optionalTime{origin + f.CreatedAt, true}, optionalTime{origin + f.PredecessorEnd, f.HasPredecessor},
	}
}

// mustWaitForSessions reports whether workers of an earlier store may be alive. If no earlier store is known, the
// leader assumes one while nodes are missing: nodes of an earlier store can hardly be alive if all nodes of the job are
// here.
func (l *leader) mustWaitForSessions(now time.Duration, allPresent bool) bool {
	end := l.earlierSessionsEnd(allPresent)
	return end.set && now < end.at
}

// earlierSessionsEnd returns when the sessions of agents of an earlier store would have expired.
func (l *leader) earlierSessionsEnd(allPresent bool) optionalTime {
	if !allPresent && !l.hasRound {
		return l.store.createdAt.add(l.job.TTL)
	}
	return l.store.predecessorEnd.add(l.job.TTL)
}

// recordEarlierStore learns from an agent that had a session in an earlier store of the run that there was one.
func (l *leader) recordEarlierStore(now time.Duration, r *Report) {
	s := &l.store
	if !r.Earlier || !s.createdAt.set || s.predecessorEnd.set && s.predecessorEnd.at >= s.createdAt.at {
		return
	}
	s.predecessorEnd = s.createdAt
	if l.job != nil && l.mustWaitForSessions(now, true) {
		l.requestUnchargedStop(now, "%s had a session in an earlier store of this run, whose workers may be alive",
			r.Node.Host)
	}
}
