package status

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/jobs"
	"github.com/elasticrun/elasticrun/internal/stacks"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/report"
)

const (
	usageAge = time.Second     // maximum age of CPU, memory and last lines
	gpuAge   = 5 * time.Second // longer, because nvidia-smi may use a second of CPU time
	// observeTimeout bounds Observe. closeTimeout bounds how long Close waits for a measurement that hangs.
	observeTimeout = 2 * time.Second
	closeTimeout   = time.Second
	// maxLastLine bounds the part of a worker's last line that is shown, in bytes.
	maxLastLine = 200
)

// UsageSampler measures workers by local rank. The real one is *procs.Sampler. One goroutine at a time calls it.
type UsageSampler interface {
	Sample(pids map[int]int) map[int]procs.Usage
}

// Sources are what an Observer measures on demand. Each function may be nil.
type Sources struct {
	Usage UsageSampler
	// LastLines returns workers' last lines by local rank. It may block on a disk.
	LastLines func() map[int]string
	// Signs returns workers' last signs of life and steps by local rank. It reads nothing.
	Signs func() map[int]stacks.Life
	GPUs  func(ctx context.Context) ([]topology.GPULoad, error)
	// Used returns how all workers of the job have used their time, as far as the agent knows.
	Used   func() *goodput.Goodput
	Logger zerolog.Logger
}

// Observer measures an agent on demand. Close it.
type Observer struct {
	tracker *Tracker
	usage   probe[map[int]Usage]
	lines   probe[map[int]string]
	gpus    probe[[]GPU]
	signs   func() map[int]stacks.Life
	used    func() *goodput.Goodput
	// procIsOurs reports whether the workers' pids are those of /proc.
	procIsOurs func() bool
	ctx        context.Context //nolint:containedctx // of measurements that outlive a call of Observe; Close cancels it
	cancel     context.CancelFunc
}

// NewObserver returns an Observer. It measures nothing before the first call of Observe.
func NewObserver(tracker *Tracker, from Sources) *Observer {
	failed := func(err error) {
		from.Logger.Warn().Err(err).Msg("the status of this node leaves out from now on what could not be measured")
	}
	o := &Observer{
		tracker: tracker,
		usage:   probe[map[int]Usage]{every: usageAge, failed: failed},
		lines:   probe[map[int]string]{every: usageAge, failed: failed},
		gpus:    probe[[]GPU]{every: gpuAge, failed: failed},

		signs: from.Signs, used: from.Used,
		procIsOurs: procs.ProcIsOurs,
	}
	if o.signs == nil {
		o.signs = func() map[int]stacks.Life { return nil }
	}
	if o.used == nil {
		o.used = func() *goodput.Goodput { return nil }
	}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	m := meter{sampler: from.Usage}
	o.usage.ask = func(ctx context.Context) (map[int]Usage, error) { return m.measure(ctx, tracker.Snapshot()), nil }
	o.lines.ask = func(context.Context) (map[int]string, error) {
		if from.LastLines == nil {
			return nil, nil
		}
		return from.LastLines(), nil
	}
	o.gpus.ask = func(ctx context.Context) ([]GPU, error) {
		if from.GPUs == nil {
			return nil, nil
		}
		loads, err := from.GPUs(ctx)
		return gpusOf(loads), err
	}
	return o
}

// Observe returns the status of the agent within 2 s. A value that cannot be measured in time is the last one measured.
func (o *Observer) Observe(ctx context.Context) Snapshot {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	usage, lines, gpus := o.usage.get(ctx, o.ctx), o.lines.get(ctx, o.ctx), o.gpus.get(ctx, o.ctx)
	s, signs := o.state(), o.signs()
	for i := range s.Workers {
		w := &s.Workers[i]
		if u, ok := usage[w.PID]; ok && w.alive() {
			w.Usage = &u
		}
		if life, ok := signs[w.LocalRank]; ok && w.alive() {
			w.Quiet, w.Sign, w.Step = &life.Quiet, life.Sign, life.Step
		}
		w.LastLine = report.Head(strings.TrimSpace(report.Printable(lines[w.LocalRank])), maxLastLine)
	}
	s.GPUs = append(s.GPUs, gpus...)
	return s
}

// LastLines returns the last lines of the workers by local rank, within 2 s.
func (o *Observer) LastLines(ctx context.Context) map[int]string {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	return o.lines.get(ctx, o.ctx)
}

// state returns the Snapshot without what has to be measured.
func (o *Observer) state() Snapshot {
	s := o.tracker.Snapshot()
	s.Time = report.Time{Time: time.Now()}
	s.Goodput = o.used()
	s.markSuspended(jobs.IsStopped)
	return s
}

// markSuspended changes the state of the running workers that are stopped by a signal, and that of the node if no other
// worker runs.
func (s *Snapshot) markSuspended(isStopped func(pid int) bool) {
	for i := range s.Workers {
		if w := &s.Workers[i]; w.State == WorkerRunning && isStopped(w.PID) {
			w.State = WorkerSuspended
		}
	}
	in := func(state WorkerState) bool {
		return slices.ContainsFunc(s.Workers, func(w Worker) bool { return w.State == state })
	}
	if s.State == Running && in(WorkerSuspended) && !in(WorkerRunning) {
		s.State = Suspended
	}
}

// Close cancels running measurements and waits up to a second for them. It leaves behind one that hangs on a disk.
func (o *Observer) Close() {
	o.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	o.usage.wait(ctx)
	o.lines.wait(ctx)
	o.gpus.wait(ctx)
}

// meter measures the usage of workers.
type meter struct {
	sampler UsageSampler
	before  map[int]bool // pids of the previous sample
}

// firstSpan is the time over which the CPU of workers without a previous sample is measured.
const firstSpan = 250 * time.Millisecond

// measure returns the usage of running workers by pid.
func (m *meter) measure(ctx context.Context, s Snapshot) map[int]Usage {
	pids := map[int]int{}
	isNew := false
	for _, w := range s.Workers {
		if w.State == WorkerRunning {
			pids[w.LocalRank] = w.PID
			isNew = isNew || !m.before[w.PID]
		}
	}
	if m.sampler == nil || len(pids) == 0 {
		return nil
	}
	if isNew {
		m.sample(pids)
		select {
		case <-time.After(firstSpan):
		case <-ctx.Done():
		}
	}
	return m.sample(pids)
}

// sample takes one sample.
func (m *meter) sample(pids map[int]int) map[int]Usage {
	now, all := map[int]bool{}, map[int]Usage{}
	for rank, u := range m.sampler.Sample(pids) {
		pid := pids[rank]
		now[pid] = true
		used := Usage{Processes: u.Processes, RSSBytes: u.RSS}
		if m.before[pid] {
			used.CPUPercent = new(math.Round(1000*u.CPU) / 10)
		}
		all[pid] = used
	}
	m.before = now
	return all
}

func gpusOf(loads []topology.GPULoad) []GPU {
	var all []GPU
	for _, load := range loads {
		g := GPU{Index: load.Index}
		if load.Utilization >= 0 {
			g.UtilizationPercent = &load.Utilization
		}
		if load.MemoryUsed >= 0 {
			g.MemoryUsedBytes = &load.MemoryUsed
		}
		if load.MemoryTotal >= 0 {
			g.MemoryTotalBytes = &load.MemoryTotal
		}
		all = append(all, g)
	}
	return all
}
