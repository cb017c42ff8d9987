package liveness

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/stacks"
)

// Options configure a [Watcher].
type Options struct {
	// Timeout is the silence after which a node is quiet. 0 derives the timeout from the rhythm of the workers' signs.
	Timeout time.Duration
	// Off disables the samples of Run. Look still works.
	Off bool
	// Blind says that the workers' pids are not those of /proc, so their processes cannot be read. Run then takes no
	// samples, and Look returns every worker as unknown.
	Blind bool
	// Suspended reports whether the job is suspended, for example by Ctrl-Z. Nil means never.
	Suspended func() bool
	// Logger is the launcher's own log. The zero value discards.
	Logger zerolog.Logger
}

// Worker is a worker that was started and has not been reaped.
type Worker struct {
	LocalRank, PID int
	// Output returns how many bytes of the worker's output the launcher has seen; nil means unknown. Files are the
	// files that the worker writes its output to directly; none means unknown.
	Output func() int64
	Files  []string
	// Step returns the last step in the worker's output, if any. Nil means that the output is not searched for steps.
	Step func() (int64, bool)
	// Heartbeat is the file that the worker may touch, or write its step to; empty for none.
	Heartbeat string
}

// Quiet says that no worker of the node shows a sign of life.
type Quiet struct {
	// For is the time since the last sign of any worker. It excludes the time in which the job was suspended or held.
	For time.Duration
	// Learned says that such a long silence is unusual. Without a configured timeout, it means that a rhythm of signs
	// was learned. With a timeout, it means that a worker has shown a sign since its Python started.
	Learned bool
	// Held says why the silence is not growing now, for example because of a debugger; empty if the silence grows.
	Held string
}

// Watcher looks for signs of life of this node's workers.
type Watcher struct {
	opts       Options
	newSampler func([]Worker) sampler

	mu      sync.Mutex
	node    *node    // guarded by mu; nil before Run
	workers []Worker // guarded by mu: the workers of the last Run, while it runs

	looks chan struct{} // semaphore of one: only one close look runs at a time
	stuck map[int]bool  // owned by the holder of looks: pids whose read in an earlier look still blocks

	// Warnings that were already logged. Only the goroutine in Run uses these fields.
	warnedHeartbeat, warnedSteps bool
}

// New returns a Watcher.
func New(opts Options) *Watcher {
	w := &Watcher{opts: opts, looks: make(chan struct{}, 1)}
	w.newSampler = func(workers []Worker) sampler {
		return newMachine(workers, func(i int, problem error) { w.warnHeartbeat(workers[i], problem) })
	}
	return w
}

// Run samples the workers until ctx ends. It calls changed when the node becomes quiet, and again when anything it
// reported except the time changes. It calls changed with nil when a worker shows a sign again. The first sample, and
// the first read, come after one interval. After Run returns, only a read that the kernel blocks may still be in
// progress.
func (w *Watcher) Run(ctx context.Context, workers []Worker, changed func(*Quiet)) {
	n := newNode(w.opts.Timeout, workers)
	w.enter(n, workers)
	defer w.enter(n, nil)
	if w.opts.Off || w.opts.Blind {
		<-ctx.Done()
		return
	}
	source := w.newSampler(workers)
	last := time.Now() // the monotonic clock stands still while the machine sleeps
	timer := time.NewTimer(n.interval())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now := time.Now()
		q, report := w.sample(ctx, n, source, now.Sub(last))
		if ctx.Err() != nil {
			return
		}
		last = now
		w.warnSteps(n, workers, q != nil)
		if report {
			changed(q)
		}
		timer.Reset(n.interval())
	}
}

// enter makes the workers visible to Look and Signs.
func (w *Watcher) enter(n *node, workers []Worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.node, w.workers = n, workers
}

// sample takes one sample. It holds the lock only for the decisions.
func (w *Watcher) sample(ctx context.Context, n *node, source sampler, dt time.Duration) (q *Quiet, changed bool) {
	if w.opts.Suspended != nil && w.opts.Suspended() {
		w.locked(n.suspend)
		return w.finish(n)
	}
	found := source.observe(ctx)
	w.locked(func() { n.observe(dt, found) })
	if n.wantsTrees() {
		trees := source.trees(ctx)
		w.locked(func() { n.addTrees(trees) })
	}
	if wishes := n.wishes(); wishes != nil {
		read := source.stacks(ctx, wishes)
		w.locked(func() { n.addStacks(read) })
		for i, worker := range n.workers {
			source.python(i, worker.python)
		}
	}
	return w.finish(n)
}

func (w *Watcher) finish(n *node) (q *Quiet, changed bool) {
	w.locked(func() { q, changed = n.finish() })
	return q, changed
}

func (w *Watcher) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// Signs returns each worker's last sign of life and last step by local rank, as of the last sample. It returns nil if
// no samples are taken. Signs reads nothing itself.
func (w *Watcher) Signs() map[int]stacks.Life {
	if w.opts.Off || w.opts.Blind {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	signs := make(map[int]stacks.Life, len(w.workers))
	for i := range w.workers {
		if worker := w.node.workers[i]; !worker.ended {
			signs[worker.localRank] = worker.life()
		}
	}
	return signs
}

// Newest returns the local rank of the worker with the newest sign of life as of the last sample, and that sign as in
// [stacks.Life]. The first of several equally new workers counts. The sign is "" if no worker has shown one.
func (w *Watcher) Newest() (localRank int, sign string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var newest *worker
	for i := range w.workers {
		worker := w.node.workers[i]
		shows := !worker.ended && worker.latest != "" && !worker.hidden
		if shows && (newest == nil || worker.quiet < newest.quiet) {
			newest = worker
		}
	}
	if newest == nil {
		return 0, ""
	}
	return newest.localRank, newest.latest
}

// life returns what the samples have shown so far.
func (w *worker) life() stacks.Life {
	l := stacks.Life{Quiet: w.quiet.Seconds(), Sign: w.latest, SinceOutput: w.silent.Seconds()}
	if w.hidden {
		l.Sign = "ran"
	}
	if w.step.set {
		step := w.step.value
		l.Step = &step
	}
	return l
}

// warnHeartbeat warns of the first heartbeat file that cannot be used.
func (w *Watcher) warnHeartbeat(worker Worker, problem error) {
	if w.warnedHeartbeat {
		return
	}
	w.warnedHeartbeat = true
	w.opts.Logger.Warn().Int("local_rank", worker.LocalRank).Err(problem).Msg("a problem with a heartbeat file")
}

// stepsTimeout is how long a step pattern may match nothing before a warning.
const stepsTimeout = 5 * time.Minute

// warnSteps warns of a step pattern that has matched nothing.
func (w *Watcher) warnSteps(n *node, workers []Worker, quiet bool) {
	if w.warnedSteps || !quiet && n.clock < stepsTimeout {
		return
	}
	for _, worker := range workers {
		if worker.Step == nil {
			return
		}
		if _, found := worker.Step(); found {
			w.warnedSteps = true // no warning is needed
			return
		}
	}
	w.warnedSteps = true
	w.opts.Logger.Warn().Msg("--step-pattern has found no step so far: no line of the workers' output has matched it " +
		"with a whole number")
}
