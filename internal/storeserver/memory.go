package storeserver

import "runtime/debug"

// memoryShares are the parts of --max-memory. They are fixed, so that workers that fill theirs cannot stop the
// coordination of a job.
type memoryShares struct {
	workers int64 // bytes for what workers store
	agents  int64 // bytes for what agents store
	runs    int   // runs that may be led at a time
}

const (
	// One part in agentsShare is for the keys of agents, one in runsShare for leaders. Workers have the rest.
	agentsShare, runsShare = 5, 20
	// runMemory estimates the memory of a leader without its keys, in bytes: goroutines, and the state of its agents.
	runMemory = 32 << 10
	// minAgents and minRuns are enough for one job, even if the shares are smaller.
	minAgents, minRuns = 4 << 20, 16
)

// divideMemory divides all, the bytes that a store may take.
func divideMemory(all int64) memoryShares {
	s := memoryShares{agents: max(all/agentsShare, minAgents), runs: max(int(all/runsShare/runMemory), minRuns)}
	s.workers = all - all/agentsShare - all/runsShare
	return s
}

// ownMemory is the memory that the process needs besides --max-memory, in bytes: code, stacks and garbage.
const ownMemory = 32 << 20

// limitHeap sets the runtime's memory limit, so that garbage is collected more often near --max-memory. A lower
// GOMEMLIMIT stays.
func limitHeap(all int64) {
	if limit := all + all/8 + ownMemory; limit < debug.SetMemoryLimit(-1) {
		debug.SetMemoryLimit(limit)
	}
}
