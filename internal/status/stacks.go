package status

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/internal/stacks"
)

const (
	// stacksTimeout bounds how long an agent reads its workers' stacks.
	stacksTimeout = 2 * time.Second
	// maxStacks bounds what an agent writes into the store, in bytes: below the store's limit, also as base64 in JSON.
	maxStacks = 1 << 20
)

// Stacks returns what the workers of this node are doing, by local rank, within 2 s. If the kernel does not let a
// worker's memory be read in time, the worker's Problem says so.
func (o *Observer) Stacks(ctx context.Context, allThreads bool) []stacks.Worker {
	return o.StacksOf(ctx, nil, allThreads)
}

// StacksOf is Stacks for the workers with those local ranks; nil means all.
func (o *Observer) StacksOf(ctx context.Context, localRanks []int, allThreads bool) []stacks.Worker {
	ctx, cancel := context.WithTimeout(ctx, stacksTimeout)
	defer cancel()
	s, signs := o.tracker.Snapshot(), o.signs()
	workers := []stacks.Worker{}
	for _, w := range s.Workers {
		if w.alive() && (localRanks == nil || slices.Contains(localRanks, w.LocalRank)) {
			worker := stacks.Worker{Rank: w.Rank, LocalRank: w.LocalRank, Host: s.Host, PID: w.PID}
			if life, ok := signs[w.LocalRank]; ok {
				worker.Life = &life
			}
			workers = append(workers, worker)
		}
	}
	if !o.procIsOurs() {
		for i := range workers {
			workers[i].Problem = "/proc belongs to another pid namespace"
		}
		return workers
	}
	type read struct {
		at     int
		worker stacks.Worker
	}
	done := make(chan read, len(workers))
	for at, w := range workers {
		// This goroutine outlives the call if the kernel does not answer: a blocked system call cannot be canceled.
		go func() { done <- read{at, stacks.Read(w, allThreads)} }()
	}
	missing := len(workers)
	for ; missing > 0; missing-- {
		select {
		case r := <-done:
			workers[r.at] = r.worker
			continue
		case <-ctx.Done():
		}
		break
	}
	if missing > 0 {
		for i := range workers {
			if w := &workers[i]; w.State == "" && w.Problem == "" {
				w.Problem = "the kernel did not let its memory be read in time"
			}
		}
	}
	return workers
}

// PackStacks returns the workers in the form in which elasticrun stacks reads them from the store. If they are too
// large, the last workers get a Problem instead of their Threads and Children.
func PackStacks(workers []stacks.Worker) []byte { return packStacks(workers, maxStacks) }

// packStacks is PackStacks for a limit in bytes.
func packStacks(workers []stacks.Worker, limit int) []byte {
	workers = slices.Clone(workers)
	for i := len(workers); ; i-- {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_ = json.NewEncoder(z).Encode(workers) // neither can fail
		_ = z.Close()
		if packed.Len() <= limit || i == 0 {
			return packed.Bytes()
		}
		w := &workers[i-1]
		w.Threads, w.Children, w.Problem = nil, nil, "the stacks of its node are too large to be sent"
	}
}

// maxUnpacked bounds the unpacked stacks of one node, in bytes.
const maxUnpacked = 64 << 20

// UnpackStacks is the inverse of [PackStacks].
func UnpackStacks(packed []byte) ([]stacks.Worker, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("unpack the stacks: %w", err)
	}
	var workers []stacks.Worker
	if err := json.NewDecoder(io.LimitReader(z, maxUnpacked)).Decode(&workers); err != nil {
		return nil, fmt.Errorf("decode the stacks: %w", err)
	}
	return workers, nil
}
