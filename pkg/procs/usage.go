package procs

import (
	"time"

	gops "github.com/shirou/gopsutil/v3/process"

	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// Usage is what one worker and all its descendants use together.
type Usage struct {
	// Processes is the number of processes, including the worker.
	Processes int
	// CPU is the CPU time since the previous sample divided by the time between the samples: 1.5 means one and a half
	// cores busy. It is 0 in a worker's first sample.
	CPU float64
	// RSS is resident memory in bytes. A page that several processes share counts once for each.
	RSS uint64
	// ReadBytes and WriteBytes count the bytes read from and written to storage since the worker started, as far as
	// samples saw them. The last I/O of a process that exits between two samples is missing. They stay 0 if the
	// system does not report them.
	ReadBytes, WriteBytes uint64
}

// Sampler measures workers. It has no goroutine and is not safe for concurrent use. A sample reads the process table
// once, for all workers.
type Sampler struct {
	at      time.Time // of the previous sample
	workers map[int]*sampledWorker
}

// sampledWorker is the state of one worker at the previous sample.
type sampledWorker struct {
	root        int32
	processes   map[int32]counters
	read, write uint64
}

// counters are the running totals of one process.
type counters struct {
	created     int64 // distinguishes a process from an earlier one with the same pid
	cpu         float64
	read, write uint64
}

// NewSampler makes a sampler. Its first sample has no CPU shares.
func NewSampler() *Sampler {
	// Without the cache gopsutil reads the boot time again for each process.
	gops.EnableBootTimeCache(true)
	return &Sampler{workers: map[int]*sampledWorker{}}
}

// Sample measures the workers whose pids are given by local rank. A worker that has exited is missing from the
// result. A worker with a new pid starts again from 0. The result is empty if /proc is missing or belongs to another
// pid namespace.
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

// sample adds up the worker's process tree.
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
			before = counters{} // new since the previous sample: its whole total counts
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

// readCounters reads one process. ok is false if the process is gone.
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
		return children // only the workers themselves are measured
	}
	for _, pid := range pids {
		// gopsutil's Children is no alternative: it runs pgrep.
		if parent, err := (&gops.Process{Pid: pid}).Ppid(); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	return children
}
