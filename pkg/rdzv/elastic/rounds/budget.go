package rounds

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/internal/plural"
	"github.com/elasticrun/elasticrun/internal/seconds"
)

// lossWindow is how long the loss of a node counts.
const lossWindow = 10 * time.Minute

// budget keeps the failures, losses and faults that still count. The zero value is empty.
type budget struct {
	charges          []time.Duration            // when failures were charged
	losses           map[string][]time.Duration // when each node was lost, by identity
	quarantinedUntil map[string]time.Duration   // by identity
	faults           map[string]*nodeFaults     // by identity
}

// restoreBudget restores the budget from a record. The time since the record's commit is unknown and does not count
// yet; shiftBack adds it later.
func restoreBudget(r Record, j *Job, now time.Duration) budget {
	var b budget
	for _, age := range r.Charges {
		b.charges = append(b.charges, now-age)
	}
	for identity, ages := range r.Losses {
		slices.SortFunc(ages, func(x, y time.Duration) int { return cmp.Compare(y, x) })
		for _, age := range ages {
			b.recordLoss(now-age, identity, j)
		}
	}
	b.restoreFaults(r, now)
	b.endQuarantines(now)
	return b
}

// saveTo writes the entries that still count into the record of a round that is decided now.
func (b *budget) saveTo(r *Record, now time.Duration, j *Job) {
	r.Charges = agesWithin(cmp.Or(j.RestartWindow, math.MaxInt64), now, b.charges)
	r.Losses = recentAges(now, b.losses)
	b.saveFaults(r, now)
}

// agesWithin returns the ages of the times that are younger than window.
func agesWithin(window, now time.Duration, times []time.Duration) (ages []time.Duration) {
	for _, at := range times {
		if age := now - at; age < window {
			ages = append(ages, age)
		}
	}
	return ages
}

// recentAges returns the ages of the times that are within lossWindow, by their keys; nil if there are none.
func recentAges(now time.Duration, times map[string][]time.Duration) (all map[string][]time.Duration) {
	for key := range times {
		if ages := agesWithin(lossWindow, now, times[key]); len(ages) > 0 {
			put(&all, key, ages)
		}
	}
	return all
}

// shiftBack makes everything older by d.
func (b *budget) shiftBack(d time.Duration) {
	shift := func(times []time.Duration) {
		for i := range times {
			times[i] -= d
		}
	}
	shift(b.charges)
	for _, times := range b.losses {
		shift(times)
	}
	for identity := range b.quarantinedUntil {
		b.quarantinedUntil[identity] -= d
	}
	for _, f := range b.faults {
		f.at, f.unreachable.At = f.at-d, f.unreachable.At-d
		for _, times := range f.missed {
			shift(times)
		}
	}
}

// charge records a failure that counts against the restart budget.
func (b *budget) charge(now time.Duration) { b.charges = append(b.charges, now) }

// charged counts the failures within window; a window of 0 is unlimited.
func (b *budget) charged(now, window time.Duration) int {
	if window > 0 {
		b.charges = slices.DeleteFunc(b.charges, func(at time.Duration) bool { return now-at >= window })
	}
	return len(b.charges)
}

// recordLoss records the loss of a node. A node that is lost too often is quarantined until lossWindow after the loss.
func (b *budget) recordLoss(at time.Duration, identity string, j *Job) {
	recent := slices.DeleteFunc(b.losses[identity], func(t time.Duration) bool { return at-t >= lossWindow })
	put(&b.losses, identity, append(recent, at))
	if end := b.lossQuarantineEnd(identity, j); end.Set {
		b.quarantineUntil(identity, end.At)
	}
}

// lossQuarantineEnd returns when the quarantine for a node's last losses ends; unset if they were too few for one.
func (b *budget) lossQuarantineEnd(identity string, j *Job) OptionalTime {
	times := b.losses[identity]
	if j.MaxNodeLosses <= 0 || len(times) < j.MaxNodeLosses {
		return OptionalTime{}
	}
	return OptionalTime{times[len(times)-1] + lossWindow, true}
}

// quarantineUntil quarantines a node until end. A quarantine that ends later stays in force.
func (b *budget) quarantineUntil(identity string, end time.Duration) {
	if before, ok := b.quarantinedUntil[identity]; !ok || end > before {
		put(&b.quarantinedUntil, identity, end)
	}
}

func (b *budget) isQuarantined(identity string) bool {
	_, ok := b.quarantinedUntil[identity]
	return ok
}

// faultInForce returns the faults for which a node is quarantined; nil if it is quarantined for its losses.
func (b *budget) faultInForce(identity string) *nodeFaults {
	if f := b.faults[identity]; f != nil && f.times > 0 && f.quarantineEnd() >= b.quarantinedUntil[identity] {
		return f
	}
	return nil
}

// quarantineReason says why a node is quarantined, for the other nodes.
func (b *budget) quarantineReason(identity string) string {
	if f := b.faultInForce(identity); f != nil {
		return f.reason
	}
	return fmt.Sprintf("lost %s in %s", plural.Of(len(b.losses[identity]), "time"), seconds.Format(lossWindow))
}

// quarantineNote says why a node is quarantined, for the node itself.
func (b *budget) quarantineNote(identity string) string {
	reason := "it was lost too often"
	if f := b.faultInForce(identity); f != nil {
		reason = f.reason
	}
	return "this node is quarantined, and is used only if the job cannot run without it: " + reason
}

// quarantinePause returns how long the leader waits before it uses a quarantined node.
func (b *budget) quarantinePause(now time.Duration, identity string, j *Job) time.Duration {
	losses := len(agesWithin(lossWindow, now, b.losses[identity]))
	return min(maxBackoff, minBackoff<<min(max(0, losses-j.MaxNodeLosses), 16))
}

// endQuarantines ends the quarantines that are over and returns the identities of their nodes.
func (b *budget) endQuarantines(now time.Duration) (released []string) {
	for identity, end := range b.quarantinedUntil {
		if now >= end {
			delete(b.quarantinedUntil, identity)
			released = append(released, identity)
		}
	}
	return released
}

// nextQuarantineEnd returns when endQuarantines has something to do next.
func (b *budget) nextQuarantineEnd() (next OptionalTime) {
	for _, end := range b.quarantinedUntil {
		next.TakeEarlier(OptionalTime{end, true})
	}
	return next
}
