package hang

import (
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/stacks"
)

// idleShare is the share of a core that the processes of a worker may use without doing anything for it.
const idleShare = 0.05

// childShare is the share of a core from which on the processes below a worker work for it. It is small, because a busy
// machine leaves them little, and large enough for data loaders that wake up to see whether there is work.
const childShare = 0.01

// receiving is how many bytes a second a worker that makes progress receives: more than the keep-alive messages of an
// idle connection.
const receiving = 16 << 10

// Compare returns the finding with what an earlier one, that long before, adds to it. Still says that the workers are
// where they were, and have written and received nothing. Proof stays only if none of them can have gone on: no main
// thread has run in between or is in a timed sleep, and no worker has used CPU time. Processes below a worker that have
// used some are at work, even if they paused during both looks, and so is one that has come to another line of the
// user's.
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
