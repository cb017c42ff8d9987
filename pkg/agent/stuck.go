package agent

import (
	"slices"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
)

// overdue keeps the time of workers that have written an error file: they are about to end, and one that does not is stuck in
// its exit handlers. The zero value keeps none.
type overdue struct {
	timeout time.Duration
	due     *time.Timer // when to begin to watch; nil: never, or at once
	watch   FileWatch   // nil: none
	paths   []string    // error files by local rank
	gone    []int       // local ranks that have ended: the news of a file may come after that of the end
	wrote   []wrote     // oldest first
	timer   *time.Timer
}

// wrote says when a worker was first seen to have written its error file.
type wrote struct {
	rank int
	at   time.Time
}

// watchAfter is how long workers have run before their error files are watched: the kernel takes 10 ms to end a watch, which a job or a round that is
// soon over need not wait for.
const watchAfter = time.Second

// newOverdue will watch the error files of the workers that run, once they have run for some time.
func (a *Agent) newOverdue() *overdue {
	o := &overdue{timeout: a.opts.ErrorExitTimeout}
	if o.timeout > 0 && a.opts.ErrorFiles != nil && !a.unwatched {
		o.due = time.NewTimer(min(watchAfter, o.timeout))
	}
	return o
}

// newWatch is newOverdue that watches at once.
func (a *Agent) newWatch() *overdue {
	o := a.newOverdue()
	if o.due != nil && o.due.Stop() {
		a.watchFiles(o)
	}
	return o
}

// watchFiles begins the watch. Where that is not possible the job goes on without.
func (a *Agent) watchFiles(o *overdue) {
	for _, f := range a.files {
		o.paths = append(o.paths, f.Error)
	}
	watched := slices.DeleteFunc(slices.Clone(o.paths), func(path string) bool { return path == "" })
	if len(watched) == 0 {
		return
	}
	watch, err := a.opts.ErrorFiles.Watch(watched)
	if err != nil {
		a.unwatched = true // it would not be otherwise the next time
		a.log.Warn().Err(err).Msg("error files are not watched: a worker that hangs after it has written its own goes unnoticed")
		return
	}
	o.watch = watch
}

// close ends the watch, in a goroutine that is counted in closing: the kernel takes its time, and the failure that ended the round is to be told
// at once.
func (o *overdue) close(closing *sync.WaitGroup) {
	if o.watch != nil {
		closing.Go(o.watch.Close)
	}
	for _, timer := range []*time.Timer{o.due, o.timer} {
		if timer != nil {
			timer.Stop()
		}
	}
}

// begin receives when the watch is to begin.
func (o *overdue) begin() <-chan time.Time {
	if o.due == nil {
		return nil
	}
	return o.due.C
}

// written receives the paths of error files as they are written.
func (o *overdue) written() <-chan string {
	if o.watch == nil {
		return nil
	}
	return o.watch.Written()
}

// expired receives when a worker's time is over.
func (o *overdue) expired() <-chan time.Time {
	if o.timer == nil {
		return nil
	}
	return o.timer.C
}

// expect notes that the error file at path was written at that time.
func (o *overdue) expect(path string, at time.Time) {
	if rank := slices.Index(o.paths, path); rank >= 0 && !slices.Contains(o.gone, rank) {
		o.wrote = append(o.wrote, wrote{rank, at})
		o.again()
	}
}

// ended forgets a worker that has.
func (o *overdue) ended(rank int) {
	o.gone = append(o.gone, rank)
	o.wrote = slices.DeleteFunc(o.wrote, func(w wrote) bool { return w.rank == rank })
	o.again()
}

// again sets the timer for the first worker whose time will be over.
func (o *overdue) again() {
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
	if len(o.wrote) > 0 {
		o.timer = time.NewTimer(time.Until(o.wrote[0].at.Add(o.timeout)))
	}
}

// give returns, after expired, the end that the agent makes up for the worker whose time is over.
func (o *overdue) give(pids map[int]int) *procs.Exit {
	first := o.wrote[0]
	return &procs.Exit{LocalRank: first.rank, PID: pids[first.rank], Code: 1, At: first.at}
}
