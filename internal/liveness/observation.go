package liveness

import (
	"hash/maphash"

	"github.com/elasticrun/elasticrun/pkg/pystack"
)

// ticksPerSecond is the unit of CPU times in /proc, USER_HZ, which is 100 on all systems that Go supports.
const ticksPerSecond = 100

// observation is what one sample has found of a worker, at little cost.
type observation struct {
	known bool // the kernel has answered in time; if not, nothing else counts
	ended bool
	// pid is the process whose values the kernel has returned: the worker, or the Python process below it.
	pid    int
	state  byte // of the main thread, as in proc_pid_stat(5)
	tracer int  // pid of the process that traces this one; 0 for none
	// atTerminal says that the main thread waits for input from a terminal.
	atTerminal bool
	// unread says that the main thread waits until somebody reads what it has written to stdout or stderr.
	unread bool
	main   threadTime
	cpu    uint64 // of all threads, in ticks
	// bytes counts what was read and written with system calls, faults the page faults, minor and major.
	bytes, faults uint64

	output    int64 // bytes
	step      optional
	heartbeat heartbeat
}

// threadTime changes whenever a thread runs.
type threadTime struct {
	switches uint64 // of context, voluntary and not
	cpu      uint64 // in ticks
}

// optional is a number that may be missing.
type optional struct {
	value int64
	set   bool
}

// heartbeat is the state of a heartbeat file. The zero value means that there is no such file.
type heartbeat struct {
	modified int64 // Unix time in nanoseconds
	step     optional
}

// process is a process below a worker, or the worker itself.
type process struct {
	id                 processID
	parent             int // pid
	name               string
	exe, args          string // the path of its program, and its command line
	state              byte
	cpu, bytes, faults uint64 // as in observation
}

// processID distinguishes a process from an earlier one with the same pid.
type processID struct {
	pid   int
	start uint64 // in ticks since boot
}

// stackRead is the result of reading a worker's Python stacks.
type stackRead struct {
	known bool // it was read in time and made sense; if not, nothing else counts
	// pid is that of the Python process; 0 if neither the worker nor a descendant is Python.
	pid int
	// threads are empty while the interpreter starts. The first one is the main thread; others are there if they were
	// asked for.
	threads []pystack.Thread
}

// stackWish says which stacks of a worker the next decision needs.
type stackWish uint8

const (
	noStacks stackWish = iota
	mainStack
	allStacks
)

// hashStack identifies a stack: its files, functions and lines.
func hashStack(seed maphash.Seed, thread int, frames []pystack.Frame) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	maphash.WriteComparable(&h, thread)
	for _, f := range frames {
		maphash.WriteComparable(&h, f)
	}
	return h.Sum64()
}
