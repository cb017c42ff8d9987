package rounds

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A node that keeps the others from working is quarantined like one that was lost too often. Each quarantine of a node
// lasts twice as long as the one before, so that the node costs the others ever less. A node whose worker store the
// others do not reach also must not be rank 0.

// nodeFaults records what a node has done to the others, and its last quarantine for that.
type nodeFaults struct {
	at          time.Duration // start of the last quarantine; before the first one, when a fault was recorded
	times       int           // quarantines for faults; 0: none
	host        string
	reason      string
	unreachable OptionalTime // when the others last failed to reach its worker store
	// missed has the last maxMissed times at which this node and another one did not reach each other in a round of two,
	// by the identity of the other node.
	missed     map[string][]time.Duration
	pairedWith string // the other node of such a round, if this node is quarantined for that
}

// quarantine quarantines a node for a fault.
func (b *budget) quarantine(now time.Duration, identity, host, reason string) {
	f := b.faultsOf(now, identity)
	f.at, f.host, f.reason, f.pairedWith = now, host, reason, ""
	f.times++
	b.quarantineUntil(identity, f.quarantineEnd())
}

// recordUnreachable records that a node must not be rank 0 for lossWindow.
func (b *budget) recordUnreachable(now time.Duration, identity, host, reason string) {
	f := b.faultsOf(now, identity)
	f.unreachable = OptionalTime{now, true}
	if f.times == 0 {
		f.at, f.host, f.reason = now, host, reason
	}
}

// If two nodes do not reach each other, either may be at fault; the one that more nodes have missed probably is.
// Suppose one of the two is quarantined, and then a third node and the other one miss each other: then the other one
// was at fault from the start, and the first is let in again.

// recordMissed records that the two nodes of a round did not reach each other.
func (b *budget) recordMissed(now time.Duration, one, other string) {
	for _, pair := range [][2]string{{one, other}, {other, one}} {
		f := b.faultsOf(now, pair[0])
		times := append(f.missed[pair[1]], now)
		put(&f.missed, pair[1], times[max(0, len(times)-maxMissed):])
		if f.times == 0 && !f.unreachable.Set {
			f.at = now
		}
	}
}

const maxMissed = 8

// missCount is how many other nodes a node has missed, and how often in all.
type missCount struct{ nodes, times int }

func (m missCount) compare(to missCount) int {
	return cmp.Or(cmp.Compare(m.nodes, to.nodes), cmp.Compare(m.times, to.times))
}

// misses counts what a node has missed within lossWindow.
func (b *budget) misses(now time.Duration, identity string) (m missCount) {
	if f := b.faults[identity]; f != nil {
		for _, times := range f.missed {
			n := len(agesWithin(lossWindow, now, times))
			m.times += n
			m.nodes += min(n, 1)
		}
	}
	return m
}

// readmit ends the quarantines of the nodes that were quarantined because they and this node did not reach each other.
// What they missed still counts, and so do their losses.
func (b *budget) readmit(now time.Duration, identity string, j *Job) {
	for wronged, f := range b.faults {
		if f.pairedWith == identity {
			f.times, f.pairedWith, f.unreachable = 0, "", OptionalTime{}
			delete(b.quarantinedUntil, wronged)
			if end := b.lossQuarantineEnd(wronged, j); end.Set && now < end.At {
				b.quarantineUntil(wronged, end.At)
			}
		}
	}
}

// faultsOf returns a node's faults, which the caller may change. It drops them first if they are forgiven.
func (b *budget) faultsOf(now time.Duration, identity string) *nodeFaults {
	f := b.faults[identity]
	if f == nil || f.forgiven(now) {
		f = &nodeFaults{}
		put(&b.faults, identity, f)
	}
	return f
}

// quarantineEnd returns when the node's last quarantine for faults ends; f.at if there was none.
func (f *nodeFaults) quarantineEnd() time.Duration {
	if f.times == 0 {
		return f.at
	}
	return f.at + lossWindow<<min(f.times-1, 10)
}

// forgiven reports whether the node has done no harm since its quarantine for as long as the quarantine lasted.
func (f *nodeFaults) forgiven(now time.Duration) bool {
	end := f.quarantineEnd()
	return now >= end+max(lossWindow, end-f.at)
}

// isUnreachable reports whether a node must not be rank 0.
func (b *budget) isUnreachable(now time.Duration, identity string) bool {
	f := b.faults[identity]
	return f != nil && f.unreachable.Set && now-f.unreachable.At < lossWindow
}

// isAtFault reports whether a node is quarantined for a fault.
func (b *budget) isAtFault(now time.Duration, identity string) bool {
	f := b.faults[identity]
	return f != nil && f.times > 0 && now < f.quarantineEnd()
}

// growthPausePerNode is how long no round is ended to let newcomers in, for each node that was quarantined for a fault
// within lossWindow.
const growthPausePerNode = time.Minute

// growthPause returns until when no round is ended to let newcomers in, because recent newcomers did harm and more of
// them may come; unset if there is no such time.
func (b *budget) growthPause(now time.Duration) OptionalTime {
	recent, last := 0, time.Duration(0)
	for _, f := range b.faults {
		if f.times > 0 && now-f.at < lossWindow {
			if recent++; recent == 1 || f.at > last {
				last = f.at
			}
		}
	}
	until := last + time.Duration(recent)*growthPausePerNode
	return OptionalTime{until, recent > 0 && now < until}
}

// saveFaults writes the faults that are not forgiven into a record.
func (b *budget) saveFaults(r *Record, now time.Duration) {
	for identity, f := range b.faults {
		if f.forgiven(now) {
			continue
		}
		put(&r.Faults, identity, NodeFault{
			Age: now - f.at, Times: f.times, Host: f.host, Reason: f.reason, Unreachable: f.unreachable.age(now),
			Missed: recentAges(now, f.missed), PairedWith: f.pairedWith,
		})
	}
}

// restoreFaults takes over a record's faults.
func (b *budget) restoreFaults(r Record, now time.Duration) {
	for identity, saved := range r.Faults {
		f := b.faultsOf(now, identity)
		*f = nodeFaults{
			at: now - saved.Age, times: saved.Times, host: saved.Host, reason: saved.Reason,
			unreachable: timeOfAge(now, saved.Unreachable), missed: map[string][]time.Duration{}, pairedWith: saved.PairedWith,
		}
		for other, ages := range saved.Missed {
			for _, age := range ages {
				f.missed[other] = append(f.missed[other], now-age)
			}
		}
		if b.isAtFault(now, identity) {
			b.quarantineUntil(identity, f.quarantineEnd())
		}
	}
}

// faultSummary names the nodes that are quarantined for faults or kept from rank 0, and why; empty if there are none.
func (b *budget) faultSummary(now time.Duration) string {
	var texts []string
	for identity, f := range b.faults {
		switch {
		case b.isAtFault(now, identity):
			texts = append(texts, fmt.Sprintf("%s is quarantined: %s", f.host, f.reason))
		case b.isUnreachable(now, identity):
			texts = append(texts, fmt.Sprintf("%s cannot be rank 0: %s", f.host, f.reason))
		}
	}
	slices.SortFunc(texts, CompareNatural)
	return joinSome(texts, "; ")
}
