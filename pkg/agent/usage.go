package agent

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/procs"
)

// usageInterval is the time between two samples.
const usageInterval = 5 * time.Second

// sampleUsage emits samples while the group runs, if there is a sampler. stop ends the sampling.
func (a *Agent) sampleUsage(ctx context.Context) (stop func()) {
	if a.opts.Usage == nil {
		return func() {}
	}
	pids, workers := a.processes.PIDs(), a.workers
	return inBackground(ctx, func(ctx context.Context) {
		tick := time.NewTicker(usageInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				a.emitUsage(now, workers, pids, a.opts.Usage.Sample(pids))
			}
		}
	})
}

// emitUsage emits a sample. The sampling goroutine calls it, so it reads nothing that Run writes.
func (a *Agent) emitUsage(now time.Time, workers []Worker, pids map[int]int, sample map[int]procs.Usage) {
	if a.opts.Events == nil {
		return
	}
	for _, rank := range slices.Sorted(maps.Keys(sample)) {
		u := sample[rank]
		a.opts.Events.Emit(events.Event{Kind: events.KindUsage, Time: now, Usage: &events.Usage{
			RunID: a.opts.Rendezvous.RunID(), GlobalRank: workers[rank].GlobalRank, LocalRank: rank,
			PID: pids[rank], Processes: u.Processes, CPUPercent: 100 * u.CPU,
			RSSBytes: u.RSS, ReadBytes: u.ReadBytes, WriteBytes: u.WriteBytes,
		}})
	}
}
