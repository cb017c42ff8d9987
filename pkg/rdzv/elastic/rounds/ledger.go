package rounds

import (
	"cmp"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/goodput"
)

// ledger is how the workers of a run have used their time until the commit of a round. It is part of the round's
// record, so a later leader continues it.
type ledger struct {
	Used goodput.Goodput `json:"used"`
	// Marks say how much Used.Running was when a step was done, without lost work. A later round may resume from that
	// step. Both numbers grow from mark to mark.
	Marks []keptMark `json:"marks,omitempty"`
	// Gap is the smallest difference of two steps in a row that a worker has shown; 0 if it is not known.
	Gap int64 `json:"gap,omitempty"`
	// Unstepped is the part of Used.Running of rounds without steps, while no round has shown one.
	Unstepped float64 `json:"unstepped,omitempty"`
	// Committed is when the round was committed. Only a later leader needs it, as far as clocks agree.
	Committed time.Time `json:"committed"`
}

// shortUsed is a goodput.Goodput with short names. A restart sends one to each node.
type shortUsed struct {
	Startup     float64 `json:"u,omitempty"`
	Running     float64 `json:"r,omitempty"`
	Lost        float64 `json:"l,omitempty"`
	Detection   float64 `json:"d,omitempty"`
	Standstill  float64 `json:"s,omitempty"`
	Preemption  float64 `json:"p,omitempty"`
	Idle        float64 `json:"i,omitempty"`
	Steps       bool    `json:"k,omitempty"`
	LostUnknown bool    `json:"x,omitempty"`
}

// keptMark says how many worker-seconds had been running, without what was lost, when a step was done.
type keptMark struct {
	Step int64   `json:"s"`
	Kept float64 `json:"k"`
}

// maxKept bounds the marks of a ledger.
const maxKept = 128

// roundTime is the known use of a round's time. Times count from the round's commit.
type roundTime struct {
	members   []memberTime
	elapsed   time.Duration
	halted    OptionalTime // when the members had to stop, as far as the leader knows
	preempted bool         // by a preemption
}

// memberTime is the known use of one member's time in a round.
type memberTime struct {
	workers int
	present time.Duration // how long it had a session; below 0 if that is not known
	silent  bool          // no report of the member is known
	done    bool          // its workers have done all their work
	// started, ran and steps are copied from the member's Report.
	started, ran *time.Duration
	steps        *StepTimes
}

// StepTimes are the steps that the workers of a node have shown in a round.
type StepTimes struct {
	Marks []StepTime `json:"marks"` // in order of time, at least one
	Gap   int64      `json:"gap,omitempty"`
	Fell  bool       `json:"fell,omitempty"`
}

// StepTime says when a step was done, since the node entered the round.
type StepTime struct {
	Step int64         `json:"s"`
	At   time.Duration `json:"t"`
}

// last returns the last step; nil if there is none.
func (s *StepTimes) last() *int64 {
	if s == nil || len(s.Marks) == 0 {
		return nil
	}
	return &s.Marks[len(s.Marks)-1].Step
}

// settle returns the ledger after a round, or as of now if the round still runs.
func (l ledger) settle(r roundTime) ledger {
	first, history := r.steps()
	if first != nil {
		l.resume(*first, history)
	}
	before, start, end := l.Used.Running, time.Duration(0), r.runEnd()
	switch {
	case first != nil:
		start = first.At
	case l.Used.Steps && !slices.ContainsFunc(r.members, func(m memberTime) bool { return m.silent }): // none was done
		start = end
	default: // some may have been done, but nobody says so
		l.Used.LostUnknown = l.Used.LostUnknown || l.Used.Steps
		start = r.started()
	}
	start = min(max(0, start), end)
	l.add(r, start, end)
	switch {
	case !l.Used.Steps:
		l.Unstepped += l.Used.Running - before
	case first != nil:
		l.mark(history, before, start, r)
	}
	return l
}

// add adds the time of a round whose workers started to work at start and went on until end.
func (l *ledger) add(r roundTime, start, end time.Duration) {
	stop := r.stop()
	for _, m := range r.members {
		if m.present < 0 {
			m.present = stop
		}
		var at time.Duration // the round's time is added up to here
		until := func(part *float64, t time.Duration) {
			if t = min(t, m.present, r.elapsed); t > at {
				*part += float64(m.workers) * (t - at).Seconds()
				at = t
			}
		}
		ran, waits := end, &l.Used.Detection
		if m.done {
			waits = &l.Used.Idle
			if m.ran != nil {
				ran = min(ran, *m.ran)
			}
		}
		until(&l.Used.Startup, min(start, ran))
		until(&l.Used.Running, ran)
		until(waits, stop)
		if r.preempted {
			until(&l.Used.Preemption, r.elapsed)
		}
		until(&l.Used.Standstill, r.elapsed)
	}
}

// runEnd returns when the first worker of the round failed, or had to stop.
func (r *roundTime) runEnd() time.Duration {
	end, all := r.stop(), true
	for _, m := range r.members {
		if all = all && m.done; m.ran != nil && !m.done {
			end = min(end, *m.ran)
		}
	}
	if all { // each has its own end
		end = r.elapsed
	}
	return max(0, end)
}

// stop returns when the workers of all members had to stop. A leader that took over halts the round again, so the
// members know better when that was.
func (r *roundTime) stop() time.Duration {
	if !r.halted.Set {
		return r.elapsed
	}
	last, known := time.Duration(0), false
	for _, m := range r.members {
		switch {
		case m.done || m.silent:
		case m.ran == nil:
			return min(r.elapsed, r.halted.At)
		default:
			last, known = max(last, *m.ran), true
		}
	}
	if !known {
		last = r.halted.At
	}
	return min(r.elapsed, r.halted.At, last)
}

// started returns when all workers of the round had been started. If a member ended before it started its workers, the
// others could only wait for it.
func (r *roundTime) started() (last time.Duration) {
	for _, m := range r.members {
		switch {
		case m.started != nil:
			last = max(last, *m.started)
		case m.ran != nil && !m.done:
			return r.elapsed
		}
	}
	return last
}

// steps returns the first step that any member has shown, and the steps of the member that has come furthest. Both are
// nil if no member has shown one.
func (r *roundTime) steps() (first *StepTime, history *StepTimes) {
	for _, m := range r.members {
		last := m.steps.last()
		if last == nil {
			continue
		}
		if first == nil || m.steps.Marks[0].At < first.At {
			first = &m.steps.Marks[0]
		}
		if history == nil || *last > *history.last() {
			history = m.steps
		}
	}
	return first, history
}

// resume moves the time of steps that a round does again from running to lost. first is the first step that the new
// round has shown. The step it resumed from came before; its number is estimated from Gap, the usual difference between
// steps.
func (l *ledger) resume(first StepTime, history *StepTimes) {
	if l.Gap == 0 || history.Gap > 0 && history.Gap < l.Gap {
		l.Gap = history.Gap
	}
	if !l.Used.Steps { // in the rounds before, no step was done
		l.Used.Steps = true
		l.Used.Startup += l.Unstepped
		l.Used.Running -= l.Unstepped
		l.Unstepped = 0
	}
	if l.Used.LostUnknown = l.Used.LostUnknown || history.Fell; l.Used.LostUnknown || len(l.Marks) == 0 {
		return
	}
	from, last := first.Step-max(1, l.Gap), l.Marks[len(l.Marks)-1].Step
	kept := l.keptAt(from)
	if from > last { // steps after the last known one were done, but not reported
		l.Used.LostUnknown = from > last+max(1, l.Gap)
		return
	}
	l.Used.Lost += l.Used.Running - kept
	l.Used.Running = kept
	end := slices.IndexFunc(l.Marks, func(m keptMark) bool { return m.Step >= from })
	l.Marks = append(slices.Clone(l.Marks[:max(0, end)]), keptMark{from, kept})
}

// keptAt returns what was kept when a step was done. Between two marks, all steps count as equally long.
func (l *ledger) keptAt(step int64) float64 {
	i, found := slices.BinarySearchFunc(l.Marks, step, func(m keptMark, s int64) int { return cmp.Compare(m.Step, s) })
	switch {
	case found:
		return l.Marks[i].Kept
	case i == 0:
		return 0
	case i == len(l.Marks):
		return l.Used.Running
	}
	a, b := l.Marks[i-1], l.Marks[i]
	return a.Kept + (b.Kept-a.Kept)*float64(step-a.Step)/float64(b.Step-a.Step)
}

// mark adds the steps of a round that started to work at start, when before worker-seconds had been running.
func (l *ledger) mark(history *StepTimes, before float64, start time.Duration, r roundTime) {
	workers := 0
	for _, m := range r.members {
		workers += m.workers
	}
	marks := slices.Clone(l.Marks)
	for _, s := range history.Marks {
		kept := min(before+float64(workers)*max(0, s.At-start).Seconds(), l.Used.Running)
		if n := len(marks); n > 0 && (s.Step <= marks[n-1].Step || kept < marks[n-1].Kept) {
			continue
		}
		marks = append(marks, keptMark{s.Step, kept})
	}
	for len(marks) > maxKept { // every second one, but for the last
		thin := marks[:0]
		for i, m := range marks {
			if i%2 == 0 || i == len(marks)-1 {
				thin = append(thin, m)
			}
		}
		marks = thin
	}
	l.Marks = marks
}
