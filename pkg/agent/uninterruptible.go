package agent

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
)

// sleepInterval is the time between two looks at the states of workers: the kernel does not notify anybody of them.
const sleepInterval = time.Second

// sleepWatch finds workers that stay in an uninterruptible sleep, state D of proc(5), like
// _check_uninterruptible_state_timeout of torch 2.14 (torch/distributed/elastic/agent/server/local_elastic_agent.py).
type sleepWatch struct {
	timeout time.Duration
	kernel  Kernel
	ticker  *time.Ticker // nil if nothing is watched
	since   map[int]sleep
}

// sleep is one uninterruptible sleep of a worker.
type sleep struct {
	since time.Time // when it was first seen
	// switches is how often the process had left the CPU. If it changes, the process has run, and this is another sleep.
	switches uint64
}

// newSleepWatch begins to watch, if Options.UninterruptibleTimeout says so. Call stop.
func (a *Agent) newSleepWatch() *sleepWatch {
	w := &sleepWatch{timeout: a.opts.UninterruptibleTimeout, kernel: a.opts.Kernel, since: make(map[int]sleep)}
	if w.timeout > 0 && w.kernel != nil {
		w.ticker = time.NewTicker(sleepInterval)
	}
	return w
}

// tick returns a channel that receives when look must be called; nil for never.
func (w *sleepWatch) tick() <-chan time.Time {
	if w.ticker == nil {
		return nil
	}
	return w.ticker.C
}

func (w *sleepWatch) stop() {
	if w.ticker != nil {
		w.ticker.Stop()
	}
}

// look looks at the workers and returns an invented exit, with code 1, for one that has slept for the timeout; nil if
// there is none.
func (w *sleepWatch) look(pids map[int]int) *procs.Exit {
	now := time.Now()
	for rank, pid := range pids {
		if w.kernel.State(pid) != 'D' {
			delete(w.since, rank)
			continue
		}
		seen, again := w.since[rank]
		if switches := w.kernel.Switches(pid); !again || seen.switches != switches {
			seen = sleep{now, switches}
			w.since[rank] = seen
		}
		if now.Sub(seen.since) >= w.timeout {
			return &procs.Exit{LocalRank: rank, PID: pid, Code: 1, At: now}
		}
	}
	return nil
}
