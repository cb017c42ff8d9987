package hang

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/internal/stacks"
)

// Finding is what a look at all workers of a job has shown.
type Finding struct {
	// Hang says that no worker makes progress, as far as can be seen from outside. If it is false, Why says why not.
	Hang bool
	Why  string
	// Proof says that no worker can go on by itself: each is blocked, stopped or in disk sleep, or has exited.
	Proof bool
	// Still says that an earlier look has found the same, and that no worker has written anything since; see Compare.
	Still bool
	// AtWork says that a process below a worker uses CPU time, so that the worker may just be waiting for it.
	AtWork bool
	// Complete says that all nodes have replied, and that the activity of every running worker is known.
	Complete bool
	// Key is equal in two findings if the workers do the same in both.
	Key string
	// Quiet is how long ago the last sign of life of any running worker was; 0 if none runs.
	Quiet time.Duration
	// SinceOutput is how long ago the last output of any running worker was, whether it was a sign of life or not.
	SinceOutput time.Duration
	// Odd are the ranks that are the likeliest reason, in order; empty if none stands out. Reason says why these.
	Odd    []int
	Reason Reason
	// Workers are those that the finding is about, by rank, and NoReply the nodes that have not replied.
	Workers []stacks.Worker
	NoReply []string
}

// SpinTimeout applies if the user has set no timeout. A worker that uses CPU time may compute, as in the first step of
// a compiled model. It counts as hanging only after no worker has shown a sign of life for this long.
const SpinTimeout = 5 * time.Minute

// Judge returns what the workers of a job show. silent are the nodes that have not replied. auto says that the user has
// set no timeout for a pause.
func Judge(workers []stacks.Worker, silent []string, auto bool) Finding {
	byRank := func(a, b stacks.Worker) int { return cmp.Compare(a.Rank, b.Rank) }
	f := Finding{
		Workers: slices.SortedFunc(slices.Values(workers), byRank), NoReply: silent, Complete: len(silent) == 0,
		Quiet: math.MaxInt64, SinceOutput: math.MaxInt64,
	}
	running := 0
	for _, w := range f.Workers {
		if exited(w) {
			continue
		}
		running++
		activity := activityOf(w)
		f.Complete = f.Complete && activity != stacks.Unknown
		if w.Life != nil {
			f.AtWork = f.AtWork || w.Life.BusyChild != ""
			f.Quiet = min(f.Quiet, w.Life.SinceSign())
			f.SinceOutput = min(f.SinceOutput, time.Duration(w.Life.SinceOutput*float64(time.Second)))
		}
	}
	if running == 0 {
		f.Quiet, f.SinceOutput = 0, 0
	}
	f.Key = key(f.Workers)
	if f.Why = f.whyNone(running); f.Why == "" && auto {
		f.Why = f.whyNotYet()
	}
	if f.Why != "" {
		return f
	}
	f.Hang = true
	f.Proof = f.Complete && !f.AtWork && !slices.ContainsFunc(f.Workers, canGoOn)
	f.Odd, f.Reason = odd(f.Workers)
	return f
}

// exited reports whether the worker's process has ended. A worker of unknown state counts as running: its process has
// so many threads, or the kernel is so slow, that it could not be read in time.
func exited(w stacks.Worker) bool { return w.Ended() || w.State == stacks.Exited }

// activityOf returns what a running worker does.
func activityOf(w stacks.Worker) stacks.Activity {
	if w.Life == nil {
		return stacks.Unknown
	}
	return w.Life.Activity
}

// canGoOn reports whether a worker may go on by itself: it uses CPU time or wakes up now and then, or too little is
// known of it.
func canGoOn(w stacks.Worker) bool {
	if exited(w) {
		return false
	}
	switch activityOf(w) {
	case stacks.Blocked, stacks.Stopped, stacks.Disk:
		return false
	case stacks.Held, stacks.Unknown, stacks.Moving, stacks.Idle, stacks.Spinning, stacks.Polling:
	}
	return true
}

// whyNone says why the workers show no hang; empty if they do.
//
// A worker that spins over several places may compute. It counts as hanging only while another one waits. If all spin,
// as workers do that wait for their GPUs, each must be in one place.
func (f Finding) whyNone(running int) string {
	waiting, busy, known := 0, 0, 0
	for _, w := range f.Workers {
		if exited(w) {
			waiting++
			continue
		}
		switch activityOf(w) {
		case stacks.Moving:
			return fmt.Sprintf("rank %d makes progress", w.Rank)
		case stacks.Held:
			return fmt.Sprintf("rank %d is held: %s", w.Rank, w.Life.Held)
		case stacks.Blocked, stacks.Stopped, stacks.Disk, stacks.Polling:
			waiting++
			known++
		case stacks.Spinning:
			known++
			if w.Life.Stacks > 1 {
				busy++
			}
		case stacks.Idle, stacks.Unknown:
		}
	}
	switch {
	case running == 0:
		return "no worker runs"
	case known == 0:
		return "all workers wait for requests, or cannot be seen"
	case busy > 0 && waiting == 0:
		return "the workers compute"
	}
	return ""
}

// busyShare is a share of a core. A worker whose processes use at least that much may compute, in other threads or in
// children, even if its main thread does not.
const busyShare = 0.25

// whyNotYet says which worker may compute and has not been silent for long enough; empty for none.
func (f Finding) whyNotYet() string {
	for _, w := range f.Workers {
		if exited(w) || w.Life == nil || f.Quiet >= SpinTimeout {
			continue
		}
		if w.Life.Activity == stacks.Spinning || w.Life.Share >= busyShare {
			return fmt.Sprintf("rank %d may compute", w.Rank)
		}
	}
	return ""
}

// key returns a text that is equal for workers that do the same. Whether a worker wakes up now and then does not count:
// one that polls every few seconds looks blocked in some looks.
func key(workers []stacks.Worker) string {
	sum := sha256.New()
	for _, w := range workers {
		fmt.Fprintf(sum, "%d %d %v\n", w.Rank, w.PID, exited(w))
		if w.Life != nil && w.Life.Stacks > 1 { // it was in one of several places
			continue
		}
		for _, f := range w.Frames() {
			fmt.Fprintf(sum, "%s:%d %s\n", f.File, f.Line, f.Function)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}
