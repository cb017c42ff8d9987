package hang

import (
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/stacks"
)

// idleShare is the share of a core below which the processes of a worker count as idle.
const idleShare = 0.05

// childShare is the share of a core from which on the processes below a worker count as at work. It is small, because a
// busy machine leaves them little CPU time. Data loaders that only wake up to look for work stay below it.
const childShare = 0.01

// receiving is how many bytes a second a worker that makes progress receives at least. Keep-alive messages of idle
// connections are fewer.
const receiving = 16 << 10

// Compare returns f with what an earlier finding adds to it; between is the time between the two. It sets Still if the
// workers are where they were, and have reported no other step and written and received nothing. It keeps Proof only if
// Still is set and no worker can have gone on: no main thread has run in between or is in a timed sleep, and no worker
// has used CPU time. It sets AtWork if a process below a worker has used CPU time, even if it paused during both looks,
// or has come to another line of the user's.
func (f Finding) Compare(before Finding, between time.Duration) Finding {
	f.Still = f.Hang && before.Hang && f.Key == before.Key
	for _, w := range f.Workers {
		was, ok := before.Worker(w.Rank)
		if exited(w) || !ok || w.Life == nil || was.Life == nil {
			continue
		}
		if w.Life.Output != was.Life.Output || !sameStep(w.Life.Step, was.Life.Step) {
			f.Still = false
		}
		if w.Life.Received > was.Life.Received+uint64(receiving*between.Seconds()) {
			f.Still = false
		}
		if w.Life.ChildCPU-was.Life.ChildCPU >= childShare*between.Seconds() || haveMoved(was.Children, w.Children) {
			f.AtWork = true
		}
		if w.Life.Switches != was.Life.Switches || w.Life.CPU-was.Life.CPU >= idleShare*between.Seconds() ||
			strings.Contains(w.Wait, "nanosleep") {
			f.Proof = false
		}
	}
	f.Proof = f.Proof && f.Still && !f.AtWork
	return f
}

// haveMoved reports whether a process is at another line of the user's than before.
func haveMoved(before, now []stacks.Child) bool {
	return slices.ContainsFunc(now, func(c stacks.Child) bool {
		i := slices.IndexFunc(before, func(was stacks.Child) bool { return was.PID == c.PID })
		return i >= 0 && before[i].Working() != c.Working()
	})
}

func sameStep(a, b *int64) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
