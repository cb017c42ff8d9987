package status

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/goodput"
)

// usedTime is what a node knows of how the job's workers have used their time. The zero value is that before the first
// round.
type usedTime struct {
	before    goodput.Goodput // as of the start of the latest round; of the whole job, once final is set
	final     bool
	workers   int // of that round, on all nodes
	began     time.Time
	firstStep time.Time // zero before it
	stopped   time.Time // when its workers had to stop; zero before
	saving    bool      // for a preemption
}

// apply applies an event.
func (u *usedTime) apply(e events.Event) {
	switch e.Kind {
	case events.KindRound:
		*u = usedTime{workers: e.WorldSize, began: e.Time}
		if e.Used != nil {
			u.before = *e.Used
		}
	case events.KindFirstStep:
		u.firstStep = e.Time
	case events.KindPreempted:
		u.saving = true
		u.stop(e.Time)
	case events.KindStop, events.KindWaiting:
		u.stop(e.Time)
	case events.KindEnd:
		if e.Used != nil {
			u.before, u.final = *e.Used, true
		}
	}
}

// stop records when workers had to stop. The first time stands.
func (u *usedTime) stop(at time.Time) {
	if u.stopped.IsZero() {
		u.stopped = at
	}
}

// goodput returns how the time was used until now; nil before the first round.
func (u *usedTime) goodput(now time.Time) *goodput.Goodput {
	g := u.before
	if u.final {
		return &g
	}
	if u.began.IsZero() {
		return nil
	}
	at, end := u.began, now
	if !u.stopped.IsZero() && u.stopped.Before(now) {
		end = u.stopped
	}
	until := func(part *float64, t time.Time) {
		if t.After(at) {
			*part += float64(u.workers) * t.Sub(at).Seconds()
			at = t
		}
	}
	switch {
	case !u.firstStep.IsZero():
		g.Steps = true
		until(&g.Startup, u.firstStep)
	case g.Steps:
		until(&g.Startup, end)
	}
	until(&g.Running, end)
	if u.saving {
		until(&g.Preemption, now)
	}
	until(&g.Standstill, now)
	g = g.Rounded()
	return &g
}
