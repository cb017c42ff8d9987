package storeserver

import "runtime/debug"

// shares are the parts of --max-memory. They are fixed, so that workers who fill their part end no job's coordination.
type shares struct {
	workers int64 // bytes for what workers store
	agents  int64 // bytes for what agents store
	runs    int   // that may be led at a time
}

const (
	// agentsShare and runsShare are the parts of the memory, one of so many, for agents' keys and for leaders. Workers have the rest.
	agentsShare, runsShare = 5, 20
	// runMemory is what a leader is taken to cost beside its keys, in bytes: its goroutines and what it knows of its agents.
	runMemory = 32 << 10
	// leastAgents and leastRuns are enough for a job also where the memory is for less.
	leastAgents, leastRuns = 4 << 20, 16
)

// shareMemory divides the bytes that a store may take.
func shareMemory(all int64) shares {
	s := shares{agents: max(all/agentsShare, leastAgents), runs: max(int(all/runsShare/runMemory), leastRuns)}
	s.workers = all - all/agentsShare - all/runsShare
	return s
}

// ownMemory is what the process takes besides: its code, its stacks, and garbage.
const ownMemory = 32 << 20

// limitHeap has garbage collected more often as the process comes to take as much as it may. A lower GOMEMLIMIT stays.
func limitHeap(all int64) {
	if limit := all + all/8 + ownMemory; limit < debug.SetMemoryLimit(-1) {
		debug.SetMemoryLimit(limit)
	}
}
