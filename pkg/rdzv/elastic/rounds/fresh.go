package rounds

import (
	"time"
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

// StoreHistory is what a leader knows of earlier stores, on the leader's clock. The zero value stands for a store that
// keeps its sessions.
type StoreHistory struct {
	createdAt      OptionalTime // when the store began without sessions; unset if it keeps them
	predecessorEnd OptionalTime // when an earlier store had ended at the latest; unset if none is known
}

// History converts f to the clock of a leader that begins at now; boot is the same moment on the clock of package
// boottime.
func (f *FreshStore) History(now, boot time.Duration) StoreHistory {
	if f == nil {
		return StoreHistory{}
	}
	origin := now - boot
	return StoreHistory{
		OptionalTime{origin + f.CreatedAt, true}, OptionalTime{origin + f.PredecessorEnd, f.HasPredecessor},
	}
}

// mustWaitForSessions reports whether workers of an earlier store may be alive. If no earlier store is known, the
// leader assumes one while nodes are missing: nodes of an earlier store can hardly be alive if all nodes of the job are
// here.
func (l *Leader) mustWaitForSessions(now time.Duration, allPresent bool) bool {
	end := l.earlierSessionsEnd(allPresent)
	return end.Set && now < end.At
}

// earlierSessionsEnd returns when the sessions of agents of an earlier store would have expired.
func (l *Leader) earlierSessionsEnd(allPresent bool) OptionalTime {
	if !allPresent && !l.hasRound {
		return l.store.createdAt.add(l.job.TTL)
	}
	return l.store.predecessorEnd.add(l.job.TTL)
}

// recordEarlierStore learns from an agent that had a session in an earlier store of the run that there was one.
func (l *Leader) recordEarlierStore(now time.Duration, r *Report) {
	s := &l.store
	if !r.Earlier || !s.createdAt.Set || s.predecessorEnd.Set && s.predecessorEnd.At >= s.createdAt.At {
		return
	}
	s.predecessorEnd = s.createdAt
	if l.job != nil && l.mustWaitForSessions(now, true) {
		l.requestUnchargedStop(now, "%s had a session in an earlier store of this run, whose workers may be alive",
			r.Node.Host)
	}
}
