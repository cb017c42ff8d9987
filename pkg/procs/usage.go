package procs

import (
	"time"

	gops "github.com/shirou/gopsutil/v3/process"

	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// Usage is what one worker and all its proctree.Descendants use together.
type Usage struct {
	// Processes is how many there are, the worker included.
	Processes int
	// CPU is the share since the previous sample, in cores: 1.5 is one and a half
	// cores busy. It is 0 in a worker's first sample.
	CPU float64
	// RSS is resident memory in bytes; pages that processes share count in each.
	RSS uint64
	// ReadBytes and WriteBytes count what went from and to storage since the worker
	// started, as far as samples saw it: the last of a process that ended between
	// two samples is missing. They stay 0 where the system does not tell.
	ReadBytes, WriteBytes uint64
}

// Sampler measures workers. It has no goroutine and is not for concurrent use; a
// sample reads the process table once, for all workers.
type Sampler struct {
	at      time.Time // of the previous sample
	workers map[int]*sampledWorker
}

// sampledWorker is what the previous sample knew of one worker.
type sampledWorker struct {
	root        int32
	processes   map[int32]counters
	read, write uint64
}

// counters are the running totals of one process.
type counters struct {
	created     int64 // tells a process from an earlier one of the same pid
	cpu         float64
	read, write uint64
}

// NewSampler makes a sampler; its first sample has no CPU shares.
func NewSampler() *Sampler {
	// Otherwise the library reads the boot time again for every process it looks at.
	gops.EnableBootTimeCache(true)
	return &Sampler{workers: map[int]*sampledWorker{}}
}

// Sample measures the workers whose pids are given by local rank. One that is gone
// is missing in the result; one with a new pid starts anew. Where /proc is missing or belongs to another pid namespace
// the result is empty.
func (s *Sampler) Sample(pids map[int]int) map[int]Usage {
	if !proctree.ProcIsOurs() {
		return nil
	}
	now := time.Now()
	elapsed := now.Sub(s.at).Seconds()
	s.at = now
	children := processTree()
	usage := make(map[int]Usage, len(pids))
	next := make(map[int]*sampledWorker, len(pids))
	for localRank, pid := range pids {
		w := s.workers[localRank]
		if w == nil || w.root != int32(pid) {
			w = &sampledWorker{root: int32(pid)}
		}
		if u := w.sample(children, elapsed); u.Processes > 0 {
			usage[localRank], next[localRank] = u, w
		}
	}
	s.workers = next
	return usage
}

// sample adds up the worker's tree.
func (w *sampledWorker) sample(children map[int32][]int32, elapsed float64) Usage {
	var u Usage
	var cpu float64
	first := w.processes == nil
	processes := map[int32]counters{}
	for todo := []int32{w.root}; len(todo) > 0; {
		pid := todo[len(todo)-1]
		todo = append(todo[:len(todo)-1], children[pid]...)
		now, rss, ok := readCounters(pid)
		if !ok {
			continue
		}
		before := w.processes[pid]
		if before.created != now.created {
			before = counters{} // new since the previous sample: all of it counts
		}
		processes[pid] = now
		u.Processes++
		u.RSS += rss
		cpu += max(0, now.cpu-before.cpu)
		w.read += now.read - min(before.read, now.read)
		w.write += now.write - min(before.write, now.write)
	}
	w.processes = processes
	u.ReadBytes, u.WriteBytes = w.read, w.write
	if !first && elapsed > 0 {
		u.CPU = cpu / elapsed
	}
	return u
}

// readCounters reads one process; not ok means that it is gone.
func readCounters(pid int32) (c counters, rss uint64, ok bool) {
	p := &gops.Process{Pid: pid}
	var err error
	if c.created, err = p.CreateTime(); err != nil {
		return c, 0, false
	}
	if times, err := p.Times(); err == nil {
		c.cpu = times.User + times.System
	}
	if memory, err := p.MemoryInfo(); err == nil {
		rss = memory.RSS
	}
	if io, err := p.IOCounters(); err == nil {
		c.read, c.write = io.ReadBytes, io.WriteBytes
	}
	return c, rss, true
}

// processTree maps every process to its children.
func processTree() map[int32][]int32 {
	children := map[int32][]int32{}
	pids, err := gops.Pids()
	if err != nil {
		return children // then only the workers themselves are measured
	}
	for _, pid := range pids {
		// Not Children(): it runs pgrep.
		if parent, err := (&gops.Process{Pid: pid}).Ppid(); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	return children
}
