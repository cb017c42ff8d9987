package main

import (
	"context"
	"math/bits"
	"os"
	"runtime"
	"sync/atomic"
	"time"
)

// loadResult is the result of one server under one load.
type loadResult struct {
	cpu      float64 // µs of the server per operation
	rate     float64 // operations per second
	p50, p99 float64 // µs
	client   float64 // µs of the load client per operation
	others   float64 // CPUs that other processes used meanwhile
}

// load is the size and duration of a load.
type load struct {
	conns, threads int
	warm, measured time.Duration
}

// The phases of a measurement.
const (
	warming int32 = iota
	measuring
	over
)

// measure puts a server under load.
func measure(ctx context.Context, s *server, op operation, ld load) (loadResult, error) {
	var phase atomic.Int32
	threads := make([]chan error, ld.threads)
	counts := make([]histogram, ld.threads)
	ready := make(chan error, ld.threads)
	for t := range threads {
		threads[t] = make(chan error, 1)
		first := ld.conns * t / ld.threads
		n := ld.conns*(t+1)/ld.threads - first
		go func() { threads[t] <- drive(s.port, op, first, n, ready, &phase, &counts[t]) }()
	}
	var failed error
	for range threads {
		if err := <-ready; err != nil {
			failed = err
		}
	}
	var before, after usage
	if failed == nil {
		sleep(ctx, ld.warm)
		before, failed = use(s.pid)
		phase.Store(measuring)
		sleep(ctx, ld.measured)
	}
	phase.Store(over)
	if failed == nil {
		after, failed = use(s.pid)
	}
	for _, t := range threads {
		if err := <-t; failed == nil {
			failed = err
		}
	}
	if failed != nil {
		return loadResult{}, failed
	}
	all := counts[0]
	for _, h := range counts[1:] {
		all.add(&h)
	}
	return newLoadResult(&all, before, after), nil
}

// sleep returns after d, or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// drive runs one thread of the load, with connections first to first+n-1.
func drive(port int, op operation, first, n int, ready chan<- error, phase *atomic.Int32, h *histogram) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l, err := dial(port, n)
	if err == nil {
		defer l.close()
		err = l.each(func(i int) []step {
			key := keyOf(first + i)
			return []step{handshake(), set(key)}
		})
	}
	ready <- err
	if err != nil {
		return err
	}
	return l.run(func(i int) []step { return op.steps(keyOf(first + i)) }, func(took time.Duration) bool {
		now := phase.Load()
		if now == measuring {
			h.record(took)
		}
		return now != over
	})
}

// usage is the CPU time used so far.
type usage struct {
	at                     time.Time
	server, client, system time.Duration
}

func use(server int) (u usage, err error) {
	u.at = time.Now()
	if u.server, err = cpu(server); err != nil {
		return u, err
	}
	if u.client, err = cpu(os.Getpid()); err != nil {
		return u, err
	}
	u.system, err = busy()
	return u, err
}

func newLoadResult(h *histogram, before, after usage) loadResult {
	ops := float64(h.total())
	span := after.at.Sub(before.at)
	server, client := after.server-before.server, after.client-before.client
	micro := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	return loadResult{
		cpu:    micro(server) / ops,
		client: micro(client) / ops,
		rate:   ops / span.Seconds(),
		p50:    micro(h.quantile(0.5)),
		p99:    micro(h.quantile(0.99)),
		others: max(0, float64(after.system-before.system-server-client)/float64(span)),
	}
}

// histogram counts durations in buckets whose width is at most 1/64 of their value.
type histogram [64 * 64]uint32

const fine = 6 // bits of a duration below the highest that select its bucket

func (h *histogram) record(d time.Duration) {
	n := uint64(max(d, 1<<fine))
	shift := bits.Len64(n) - 1 - fine
	h[shift<<fine+int(n>>shift)&(1<<fine-1)]++
}

func (h *histogram) add(other *histogram) {
	for i, n := range other {
		h[i] += n
	}
}

func (h *histogram) total() (n uint64) {
	for _, c := range h {
		n += uint64(c)
	}
	return n
}

// quantile returns the lower end of the bucket that holds the quantile q.
func (h *histogram) quantile(q float64) time.Duration {
	rest := int64(q * float64(h.total()))
	for i, c := range h {
		if rest -= int64(c); rest < 0 {
			return time.Duration(1<<fine+i&(1<<fine-1)) << (i >> fine)
		}
	}
	return 0
}
