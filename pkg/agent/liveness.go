package agent

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
)

// heartbeatFile returns the path of a worker's heartbeat file; empty if it has none. Each round has files of its own,
// so that no file is older than its worker. A node with one worker uses the file that the user chose; several workers
// cannot share a file.
func heartbeatFile(s WorkerSpec, in StartInput, localRank int) string {
	if path, _ := lookup(in.Env, HeartbeatEnv); path != "" && s.LocalWorldSize == 1 {
		return path
	}
	if in.WorkerDir == "" {
		return ""
	}
	return filepath.Join(in.WorkerDir, strconv.Itoa(in.Round.Number)+"."+strconv.Itoa(localRank))
}

// countOutput attaches scanners to the output of the workers of specs: one counts bytes, one finds steps. Call it
// before the workers are started.
func (a *Agent) countOutput(specs []procs.Spec) {
	a.watched, a.steps = nil, nil
	if a.opts.Liveness == nil {
		return
	}
	history := &stepHistory{began: time.Now()}
	for i := range specs {
		s := &specs[i]
		w := WatchedWorker{LocalRank: s.LocalRank}
		if a.opts.WorkerDir != "" || len(specs) == 1 { // else the variable names a file that the user chose for all
			w.Heartbeat, _ = lookup(s.Env, HeartbeatEnv)
		}
		counter := new(outputCounter)
		w.Output = counter.bytes.Load
		source := stepSource{heartbeat: w.Heartbeat}
		if a.opts.StepPattern != nil {
			steps := newStepFinder(a.opts.StepPattern)
			source.finder = steps
			w.Step = steps.last
			s.Stdout.AddScanner(steps.stream())
			s.Stderr.AddScanner(steps.stream())
			s.Stdout.Piped, s.Stderr.Piped = true, true
		}
		s.Stdout.AddScanner(counter)
		s.Stderr.AddScanner(counter)
		for _, path := range []string{s.Stdout.OwnFile(), s.Stderr.OwnFile()} {
			if path != "" {
				w.Files = append(w.Files, path)
			}
		}
		a.watched = append(a.watched, w)
		history.sources = append(history.sources, source)
	}
	a.steps = history
}

// watchLiveness looks for signs of life of the workers while the group runs, if Options.Liveness is set.
func (a *Agent) watchLiveness(ctx context.Context) (stop func()) {
	if a.watched == nil {
		return func() {}
	}
	pids := a.processes.PIDs()
	workers := slices.DeleteFunc(slices.Clone(a.watched), func(w WatchedWorker) bool { return pids[w.LocalRank] == 0 })
	for i := range workers {
		workers[i].PID = pids[workers[i].LocalRank]
	}
	return inBackground(ctx, func(ctx context.Context) { a.opts.Liveness.Run(ctx, workers, a.opts.Rendezvous.Quiet) })
}

// outputCounter counts the bytes of a worker's streams.
type outputCounter struct{ bytes atomic.Int64 }

// Scan implements workerlog.Scanner.
func (c *outputCounter) Scan(p []byte, _ time.Time) { c.bytes.Add(int64(len(p))) }
