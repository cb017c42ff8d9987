package status

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/report"
)

const (
	usageAge = time.Second     // how old CPU, memory and last lines may be
	gpuAge   = 5 * time.Second // nvidia-smi may take a second of CPU time itself
	// lookBound is how long one look takes at most, closeBound how long Close waits for what hangs.
	lookBound  = 2 * time.Second
	closeBound = time.Second
	// maxLastLine is how much of a worker's last line is shown, in bytes.
	maxLastLine = 200
)

// UsageSampler measures workers, by local rank; *procs.Sampler is the real one. It is called by one goroutine at a time.
type UsageSampler interface {
	Sample(pids map[int]int) map[int]procs.Usage
}

// Sources are what a Looker asks while somebody looks. Each may be nil.
type Sources struct {
	Usage UsageSampler
	// LastLines returns workers' last lines by local rank; it may take as long as a disk.
	LastLines func() map[int]string
	GPUs      func(ctx context.Context) ([]topology.GPULoad, error)
	Logger    zerolog.Logger
}

// Looker looks at an agent. Close it.
type Looker struct {
	board *Board
	usage probe[map[int]Usage]
	lines probe[map[int]string]
	gpus  probe[[]GPU]
	life  context.Context //nolint:containedctx // that of the goroutines which lookers leave behind, and Close ends
	end   context.CancelFunc
}

// NewLooker makes a Looker. Nothing is asked before somebody looks.
func NewLooker(board *Board, from Sources) *Looker {
	failed := func(err error) { from.Logger.Warn().Err(err).Msg("the node's status goes without it from now on") }
	l := &Looker{
		board: board,
		usage: probe[map[int]Usage]{every: usageAge, failed: failed},
		lines: probe[map[int]string]{every: usageAge, failed: failed},
		gpus:  probe[[]GPU]{every: gpuAge, failed: failed},
	}
	l.life, l.end = context.WithCancel(context.Background())
	m := meter{sampler: from.Usage}
	l.usage.ask = func(ctx context.Context) (map[int]Usage, error) { return m.measure(ctx, board.Snapshot()), nil }
	l.lines.ask = func(context.Context) (map[int]string, error) {
		if from.LastLines == nil {
			return nil, nil
		}
		return from.LastLines(), nil
	}
	l.gpus.ask = func(ctx context.Context) ([]GPU, error) {
		if from.GPUs == nil {
			return nil, nil
		}
		loads, err := from.GPUs(ctx)
		return gpusOf(loads), err
	}
	return l
}

// Look returns what the agent knows of itself. It takes 2 s at most: what cannot be found out in time is as it was at the last look.
func (l *Looker) Look(ctx context.Context) Snapshot {
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	usage, lines, gpus := l.usage.get(ctx, l.life), l.lines.get(ctx, l.life), l.gpus.get(ctx, l.life)
	s := l.board.Snapshot()
	s.Time = report.Time{Time: time.Now()}
	for i := range s.Workers {
		w := &s.Workers[i]
		if u, ok := usage[w.PID]; ok && w.State == WorkerRunning {
			w.Usage = &u
		}
		w.LastLine = report.Begin(strings.TrimSpace(report.Printable(lines[w.LocalRank])), maxLastLine)
	}
	s.GPUs = append(s.GPUs, gpus...)
	return s
}

// Close ends what lookers have begun. It waits a second at most: a disk that hangs is left to itself.
func (l *Looker) Close() {
	l.end()
	ctx, cancel := context.WithTimeout(context.Background(), closeBound)
	defer cancel()
	l.usage.wait(ctx)
	l.lines.wait(ctx)
	l.gpus.wait(ctx)
}

// meter measures workers.
type meter struct {
	sampler UsageSampler
	before  map[int]bool // pids of the sample before
}

// firstSpan is over how long the CPU of workers is measured that were not looked at before.
const firstSpan = 250 * time.Millisecond

// measure returns what the workers that run use, by pid.
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

// sample measures once.
func (m *meter) sample(pids map[int]int) map[int]Usage {
	now, all := map[int]bool{}, map[int]Usage{}
	for rank, u := range m.sampler.Sample(pids) {
		pid := pids[rank]
		now[pid] = true
		told := Usage{Processes: u.Processes, RSSBytes: u.RSS}
		if m.before[pid] {
			told.CPUPercent = new(math.Round(1000*u.CPU) / 10)
		}
		all[pid] = told
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
