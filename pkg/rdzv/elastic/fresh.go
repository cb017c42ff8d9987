package elastic

import (
	"time"

	"github.com/elasticrun/elasticrun/internal/boottime"
)

// Fresh describes a store that began without the sessions of the one before it. There may have been one: its process was killed,
// say, and started again. Agents of that one may be cut off, and their workers live until their leases end, which nobody here knows.
type Fresh struct {
	// Since is when the store began, by package boottime.
	Since time.Duration
	// Predecessor says that there was one, or may have been, which Ended then at the latest, by package boottime.
	Predecessor bool
	Ended       time.Duration
}

// instance is what a leader knows of its store. The zero value is a store that keeps its sessions.
type instance struct {
	born  moment // by the leader's clock; set where the store was fresh then
	ended moment // when another one did, at the latest; not set where none is known
}

// at is what a leader of the store knows that begins now.
func (f *Fresh) at(now time.Duration) instance {
	if f == nil {
		return instance{}
	}
	origin := now - boottime.Now()
	return instance{moment{origin + f.Since, true}, moment{origin + f.Ended, f.Predecessor}}
}

// held reports whether workers of an earlier store may be alive. Where nobody has heard of one that is taken for possible as long as nodes are
// missing: all of them at once can hardly be there beside those of an earlier store.
func (l *leader) held(now time.Duration, complete bool) bool {
	until := l.heldUntil(complete)
	return until.set && now < until.at
}

// heldUntil is when the leases of the agents of an earlier store have ended.
func (l *leader) heldUntil(complete bool) (until moment) {
	if i := l.instance; !complete && !l.rounds {
		until = i.born
	} else {
		until = i.ended
	}
	until.at += l.job.TTL
	return until
}

// noteEarlier takes note of an agent that had a session in an earlier store of the run.
func (l *leader) noteEarlier(now time.Duration, r *Report) {
	if i := &l.instance; r.Earlier && i.born.set && (!i.ended.set || i.ended.at < i.born.at) {
		i.ended = i.born
	} else {
		return
	}
	if l.job != nil && l.held(now, true) {
		l.interrupt(now, "%s had a session in an earlier store of this run, whose workers may be alive", r.Node.Host)
	}
}
