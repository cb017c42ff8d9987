package elastic

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A node that keeps the others from working is set aside: it is parked like one that was lost too often, each time for twice as long, so
// that it costs the others ever less. A node whose worker store the others do not reach is besides not to be rank 0.

// aside is why a node was set aside last.
type aside struct {
	at          time.Duration
	times       int // 0: it was not
	host        string
	why         string
	unreachable moment // when its worker store was not reached last
	// missed is when it was one of two nodes that did not reach each other, by the identity of the other one, the last maxMissed times.
	missed map[string][]time.Duration
	by     string // the other one of two such nodes, if this one was set aside for that
}

// setAside parks a node.
func (b *budget) setAside(now time.Duration, identity, host, why string) {
	a := b.asideOf(now, identity)
	a.at, a.host, a.why, a.by = now, host, why, ""
	a.times++
	b.park(identity, a.until())
}

// keepFromFirst notes that a node is not to be rank 0.
func (b *budget) keepFromFirst(now time.Duration, identity, host, why string) {
	a := b.asideOf(now, identity)
	a.unreachable = moment{now, true}
	if a.times == 0 {
		a.at, a.host, a.why = now, host, why
	}
}

// Of two nodes that do not reach each other either may be at fault. The one that more nodes have missed is: if one of them is set aside, and then
// a third node and the other one miss each other, it was that one all along, and the first is let in again.

// noteMissed notes that two nodes do not reach each other.
func (b *budget) noteMissed(now time.Duration, one, other string) {
	for _, pair := range [][2]string{{one, other}, {other, one}} {
		a := b.asideOf(now, pair[0])
		if a.missed == nil {
			a.missed = map[string][]time.Duration{}
		}
		times := append(a.missed[pair[1]], now)
		if a.missed[pair[1]] = times[max(0, len(times)-maxMissed):]; a.times == 0 && !a.unreachable.set {
			a.at = now
		}
	}
}

const maxMissed = 8

// misses tells how many nodes a node has missed, and how often in all.
func (b *budget) misses(now time.Duration, identity string) (m misses) {
	if a := b.asides[identity]; a != nil {
		for _, times := range a.missed {
			n := 0
			for _, at := range times {
				if now-at < lossWindow {
					n++
				}
			}
			m.times += n
			m.nodes += min(n, 1)
		}
	}
	return m
}

// misses are how many nodes a node has missed, and how often in all.
type misses struct{ nodes, times int }

func (m misses) compare(to misses) int {
	return cmp.Or(cmp.Compare(m.nodes, to.nodes), cmp.Compare(m.times, to.times))
}

// readmit lets in the nodes that were set aside because of that one.
func (b *budget) readmit(identity string) {
	for wronged, a := range b.asides {
		if a.by == identity { // what it has missed stays known
			a.times, a.by, a.unreachable = 0, "", moment{}
			delete(b.parkedUntil, wronged)
		}
	}
}

// asideOf is what is known of that node, for a change. What is long ago is forgotten.
func (b *budget) asideOf(now time.Duration, identity string) *aside {
	if b.asides == nil {
		b.asides = map[string]*aside{}
	}
	a := b.asides[identity]
	if a == nil || a.forgotten(now) {
		a = &aside{}
		b.asides[identity] = a
	}
	return a
}

// until is when the node may be in a round again.
func (a *aside) until() time.Duration {
	if a.times == 0 {
		return a.at
	}
	return a.at + lossWindow<<min(a.times-1, 10)
}

// forgotten reports whether the node is as good as any other: it was let in, and did no harm for as long as it had been set aside.
func (a *aside) forgotten(now time.Duration) bool {
	return now >= a.until()+max(lossWindow, a.until()-a.at)
}

// isUnreachable reports whether a node is not to be rank 0.
func (b *budget) isUnreachable(now time.Duration, identity string) bool {
	a := b.asides[identity]
	return a != nil && a.unreachable.set && now-a.unreachable.at < lossWindow
}

// isAside reports whether a node is set aside.
func (b *budget) isAside(now time.Duration, identity string) bool {
	a := b.asides[identity]
	return a != nil && a.times > 0 && now < a.until()
}

// growthPause is until when no round is to be ended for newcomers: there were some a moment ago that did harm, and there may be ever new ones.
func (b *budget) growthPause(now time.Duration) moment {
	recent, last := 0, time.Duration(0)
	for _, a := range b.asides {
		if a.times > 0 && now-a.at < lossWindow {
			if recent++; recent == 1 || a.at > last {
				last = a.at
			}
		}
	}
	until := last + time.Duration(recent)*growthPausePerNode
	return moment{until, recent > 0 && now < until}
}

// growthPausePerNode is how long no round is ended for newcomers, for each node that was set aside in lossWindow.
const growthPausePerNode = time.Minute

// storeAsides writes what is not forgotten into a record.
func (b *budget) storeAsides(now time.Duration, r *Record) {
	for identity, a := range b.asides {
		if a.forgotten(now) {
			continue
		}
		if r.Aside == nil {
			r.Aside = map[string]Aside{}
		}
		kept := Aside{Age: now - a.at, Times: a.times, Host: a.host, Why: a.why, Unreachable: a.unreachable.age(now), By: a.by}
		for other, times := range a.missed {
			for _, at := range times {
				if now-at >= lossWindow {
					continue
				}
				if kept.Missed == nil {
					kept.Missed = map[string][]time.Duration{}
				}
				kept.Missed[other] = append(kept.Missed[other], now-at)
			}
		}
		r.Aside[identity] = kept
	}
}

// restoreAsides takes over what a record says.
func (b *budget) restoreAsides(now time.Duration, r Record) {
	for identity, kept := range r.Aside {
		a := b.asideOf(now, identity)
		*a = aside{
			at: now - kept.Age, times: kept.Times, host: kept.Host, why: kept.Why, unreachable: ago(now, kept.Unreachable), by: kept.By,
			missed: map[string][]time.Duration{},
		}
		for other, ages := range kept.Missed {
			for _, age := range ages {
				a.missed[other] = append(a.missed[other], now-age)
			}
		}
		if b.isAside(now, identity) {
			b.park(identity, a.until())
		}
	}
}

// age is how long ago a moment is; nil where it is not set.
func (m moment) age(now time.Duration) *time.Duration {
	if !m.set {
		return nil
	}
	age := now - m.at
	return &age
}

// ago is the moment of that age.
func ago(now time.Duration, age *time.Duration) moment {
	if age == nil {
		return moment{}
	}
	return moment{now - *age, true}
}

// asideNote says for people which nodes are set aside, or kept from rank 0, and why; empty for none.
func (b *budget) asideNote(now time.Duration) string {
	var texts []string
	for identity, a := range b.asides {
		switch {
		case b.isAside(now, identity):
			texts = append(texts, fmt.Sprintf("%s is set aside: %s", a.host, a.why))
		case b.isUnreachable(now, identity):
			texts = append(texts, fmt.Sprintf("%s cannot be rank 0: %s", a.host, a.why))
		}
	}
	slices.SortFunc(texts, compareNatural)
	if more := len(texts) - maxNamed; more > 0 {
		texts = append(texts[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}
