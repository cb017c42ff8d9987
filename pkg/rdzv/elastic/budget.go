package elastic

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// lossWindow is how long the loss of a node counts.
const lossWindow = 10 * time.Minute

// budget keeps the times of failures and losses that still count. The zero value is empty.
type budget struct {
	charges     []time.Duration            // when failures were charged
	losses      map[string][]time.Duration // when each identity was lost
	parkedUntil map[string]time.Duration   // until when identities are parked
	asides      map[string]*aside          // the identities that were set aside
}

// budgetOf takes over what a record says. Time that passed since its commit is not known and does not count.
func budgetOf(r Record, j *Job, now time.Duration) budget {
	var b budget
	for _, age := range r.Charges {
		b.charges = append(b.charges, now-age)
	}
	for identity, ages := range r.Losses {
		slices.SortFunc(ages, func(x, y time.Duration) int { return cmp.Compare(y, x) })
		for _, age := range ages {
			b.lose(now-age, identity, j)
		}
	}
	b.restoreAsides(now, r)
	b.release(now)
	return b
}

// store writes what counts into the record of a round that is decided now.
func (b *budget) store(now time.Duration, r *Record, j *Job) {
	for _, at := range b.charges {
		if age := now - at; j.RestartWindow == 0 || age < j.RestartWindow {
			r.Charges = append(r.Charges, age)
		}
	}
	for identity, times := range b.losses {
		for _, at := range times {
			if age := now - at; age < lossWindow {
				if r.Losses == nil {
					r.Losses = map[string][]time.Duration{}
				}
				r.Losses[identity] = append(r.Losses[identity], age)
			}
		}
	}
	b.storeAsides(now, r)
}

// shift makes everything older by d.
func (b *budget) shift(d time.Duration) {
	for i := range b.charges {
		b.charges[i] -= d
	}
	for _, times := range b.losses {
		for i := range times {
			times[i] -= d
		}
	}
	for identity := range b.parkedUntil {
		b.parkedUntil[identity] -= d
	}
	for _, a := range b.asides {
		a.at, a.unreachable.at = a.at-d, a.unreachable.at-d
		for _, times := range a.missed {
			for i := range times {
				times[i] -= d
			}
		}
	}
}

// charge notes a failure that counts.
func (b *budget) charge(now time.Duration) { b.charges = append(b.charges, now) }

// charged counts the failures that are not forgiven yet.
func (b *budget) charged(now, window time.Duration) int {
	if window > 0 {
		b.charges = slices.DeleteFunc(b.charges, func(at time.Duration) bool { return now-at >= window })
	}
	return len(b.charges)
}

// lose notes the loss of a node. One that is lost too often is parked until that is lossWindow ago.
func (b *budget) lose(at time.Duration, identity string, j *Job) {
	if b.losses == nil {
		b.losses = map[string][]time.Duration{}
	}
	recent := slices.DeleteFunc(b.losses[identity], func(t time.Duration) bool { return at-t >= lossWindow })
	b.losses[identity] = append(recent, at)
	if j.MaxNodeLosses > 0 && len(b.losses[identity]) >= j.MaxNodeLosses {
		b.park(identity, at+lossWindow)
	}
}

// park keeps a node out of rounds until then, unless it is kept out for longer.
func (b *budget) park(identity string, until time.Duration) {
	if b.parkedUntil == nil {
		b.parkedUntil = map[string]time.Duration{}
	}
	if before, parked := b.parkedUntil[identity]; !parked || until > before {
		b.parkedUntil[identity] = until
	}
}

func (b *budget) isParked(identity string) bool {
	_, parked := b.parkedUntil[identity]
	return parked
}

// whyParked says it for people.
func (b *budget) whyParked(identity string) string {
	if a := b.asides[identity]; a != nil && a.times > 0 && a.until() >= b.parkedUntil[identity] {
		return a.why
	}
	return fmt.Sprintf("lost %d times in %v", len(b.losses[identity]), lossWindow)
}

// release returns the identities that are no longer parked.
func (b *budget) release(now time.Duration) (free []string) {
	for identity, until := range b.parkedUntil {
		if now >= until {
			delete(b.parkedUntil, identity)
			free = append(free, identity)
		}
	}
	return free
}

// nextRelease is when release will have something to return.
func (b *budget) nextRelease() (m moment) {
	for _, until := range b.parkedUntil {
		if !m.set || until < m.at {
			m = moment{until, true}
		}
	}
	return m
}
