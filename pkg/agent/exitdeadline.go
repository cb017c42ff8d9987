package agent

import (
	"slices"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
)

// exitDeadline keeps deadlines for workers that have written an error file. Such a worker is about to end; one that
// does not end hangs in its exit handlers. The zero value keeps none.
type exitDeadline struct {
	timeout time.Duration
	begin   <-chan time.Time // receives when to begin to watch; nil for never
	watch   FileWatch        // nil for none
	written <-chan string    // receives the paths of error files as they are written; nil for none
	paths   []string         // error files, by local rank
	ended   []int            // local ranks; a file may be notified after the exit
	pending []errorFileWrite
	expired <-chan time.Time // receives when the deadline of the first pending one has passed; nil for none
}

// errorFileWrite is when a worker was first seen to have written its error file. The pending ones are in order of time.
type errorFileWrite struct {
	rank int
	at   time.Time
}

// watchDelay is how long workers run before their error files are watched. The kernel takes 10 ms to end a watch, which
// a short job or round should not wait for.
const watchDelay = time.Second

// newExitDeadline returns an exitDeadline for the running workers that begins to watch after watchDelay.
func (a *Agent) newExitDeadline() *exitDeadline {
	d := &exitDeadline{timeout: a.opts.ErrorExitTimeout}
	if d.timeout > 0 && a.opts.ErrorFiles != nil && !a.unwatchable {
		d.begin = time.After(min(watchDelay, d.timeout))
	}
	return d
}

// watchErrorFilesNow is newExitDeadline without the delay.
func (a *Agent) watchErrorFilesNow() *exitDeadline {
	d := a.newExitDeadline()
	if d.begin != nil {
		d.begin = nil
		a.watchErrorFiles(d)
	}
	return d
}

// watchErrorFiles begins the watch. If the files cannot be watched, the job goes on without.
func (a *Agent) watchErrorFiles(d *exitDeadline) {
	for _, f := range a.files {
		d.paths = append(d.paths, f.Error)
	}
	watched := slices.DeleteFunc(slices.Clone(d.paths), func(path string) bool { return path == "" })
	if len(watched) == 0 {
		return
	}
	watch, err := a.opts.ErrorFiles.Watch(watched)
	if err != nil {
		a.unwatchable = true // the next attempt would fail as well
		a.log.Warn().Err(err).
			Msg("cannot watch error files: a worker that hangs after it has written its error file is not noticed")
		return
	}
	d.watch, d.written = watch, watch.Written()
}

// close ends the watch in a goroutine that closing counts. The kernel takes time to end a watch, and the failure that
// ended the round must be reported at once.
func (d *exitDeadline) close(closing *sync.WaitGroup) {
	if d.watch != nil {
		closing.Go(d.watch.Close)
	}
}

// expect starts the deadline of the worker with the error file at path, which was written at that time.
func (d *exitDeadline) expect(path string, at time.Time) {
	if rank := slices.Index(d.paths, path); rank >= 0 && !slices.Contains(d.ended, rank) {
		d.pending = append(d.pending, errorFileWrite{rank, at})
		d.reset()
	}
}

// cancel removes the deadline of a worker that has ended.
func (d *exitDeadline) cancel(rank int) {
	d.ended = append(d.ended, rank)
	d.pending = slices.DeleteFunc(d.pending, func(w errorFileWrite) bool { return w.rank == rank })
	d.reset()
}

// reset sets the timer to the first deadline.
func (d *exitDeadline) reset() {
	d.expired = nil
	if len(d.pending) > 0 {
		d.expired = time.After(time.Until(d.pending[0].at.Add(d.timeout)))
	}
}

// expire returns an invented exit, with code 1, for the worker with the first deadline. Call it after expired.
func (d *exitDeadline) expire(pids map[int]int) procs.Exit {
	first := d.pending[0]
	return procs.Exit{LocalRank: first.rank, PID: pids[first.rank], Code: 1, At: first.at}
}
