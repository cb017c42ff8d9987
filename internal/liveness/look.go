package liveness

import (
	"context"
	"hash/maphash"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/internal/stacks"
)

const (
	// lookTime is how long a close look lasts. shotInterval is the time between its observations.
	lookTime     = time.Second
	shotInterval = 40 * time.Millisecond
	// lateTime is how much longer than lookTime a look waits for the kernel.
	lateTime = 500 * time.Millisecond
)

// Look watches all workers closely for about a second and returns by local rank what they do. Workers that have exited
// are missing. Look may be called while Run runs; concurrent calls run one after the other.
func (w *Watcher) Look(ctx context.Context) map[int]stacks.Life {
	select {
	case w.looks <- struct{}{}:
		defer func() { <-w.looks }()
	case <-ctx.Done():
		return nil
	}
	w.mu.Lock()
	workers, interval := w.workers, time.Duration(0)
	before, outputs := make([]stacks.Life, len(workers)), make([]int64, len(workers))
	for i := range workers {
		before[i], outputs[i] = w.node.workers[i].life(), w.node.workers[i].last.output
		interval = w.node.interval()
	}
	w.mu.Unlock()

	type result struct {
		at      int
		life    stacks.Life
		sockets []uint32 // inodes
		ok      bool
	}
	begin, receivedBefore := time.Now(), received()
	sockets := make(map[int][]uint32, len(workers)) // by local rank
	results := make(chan result, len(workers))
	begun := 0
	lives := make(map[int]stacks.Life, len(workers))
	for i, worker := range workers {
		lives[worker.LocalRank] = withSign(stacks.Life{Activity: stacks.Unknown}, before[i])
		if w.opts.Blind || w.lookBlocked(worker.PID) {
			continue
		}
		begun++
		recent := !w.opts.Off && before[i].Sign != "" && before[i].SinceSign() <= 2*interval
		// This goroutine outlives the call if the kernel does not answer: a blocked system call cannot be canceled.
		go func() {
			life, open, ok := lookAt(ctx, worker, recent)
			w.lookEnded(worker.PID)
			life.Output = max(life.Output, outputs[i]) // the look does not ask for the size of log files
			results <- result{i, withSign(life, before[i]), open, ok}
		}()
	}
	late := time.NewTimer(lookTime + lateTime)
	defer late.Stop()
	for waits := true; waits && begun > 0; begun-- {
		select {
		case r := <-results:
			rank := workers[r.at].LocalRank
			if delete(lives, rank); r.ok {
				lives[rank], sockets[rank] = r.life, r.sockets
			}
		case <-late.C:
			waits = false
		case <-ctx.Done():
			waits = false
		}
	}
	addReceived(lives, sockets, receivedBefore, received(), time.Since(begin))
	return lives
}

// addReceived adds what the workers' sockets received before a look and during it. A worker that receives data makes
// progress, whatever its main thread does.
func addReceived(
	lives map[int]stacks.Life, sockets map[int][]uint32, before, now map[uint32]uint64, took time.Duration,
) {
	for rank, inodes := range sockets {
		last, sum := uint64(0), uint64(0)
		seen := make(map[uint32]bool, len(inodes)) // forked processes share sockets
		for _, inode := range inodes {
			if !seen[inode] {
				seen[inode], last, sum = true, last+before[inode], sum+now[inode]
			}
		}
		life := lives[rank]
		life.Received = sum
		if before != nil && now != nil && enoughBytes.reached(last, sum, took) && canRun(life.Activity) {
			life.Activity = stacks.Moving
		}
		lives[rank] = life
	}
}

// lookBlocked reports whether an earlier look at a process is still blocked. If none is, it records that one begins.
func (w *Watcher) lookBlocked(pid int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stuck[pid] {
		return true
	}
	if w.stuck == nil {
		w.stuck = make(map[int]bool)
	}
	w.stuck[pid] = true
	return false
}

func (w *Watcher) lookEnded(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.stuck, pid)
}

// withSign adds what earlier samples have shown to a close look.
func withSign(life, before stacks.Life) stacks.Life {
	life.Quiet, life.Sign, life.Step, life.SinceOutput = before.Quiet, before.Sign, before.Step, before.SinceOutput
	return life
}

// lookAt looks closely at one worker and returns the inodes of its processes' open sockets. ok is false if the worker
// has exited.
func lookAt(ctx context.Context, worker Worker, recent bool) (life stacks.Life, sockets []uint32, ok bool) {
	reader := workerReader{worker: worker, code: pythonReader{worker: worker.PID}}
	before := listProcesses(worker.PID)
	look, seed, seen := closeLook{recent: recent}, maphash.MakeSeed(), map[uint64]bool{}
	tick := time.NewTicker(shotInterval)
	defer tick.Stop()
	python, unread := 0, true
	begun := time.Now()
	for last := false; !last; look.shots++ {
		last = time.Since(begun) >= lookTime || ctx.Err() != nil
		o := reader.readKernel(python)
		if o.ended {
			return life, nil, false
		}
		reader.addCounters(&o)
		if unread = unread || o.main != look.last.main; unread {
			r := reader.code.read(false)
			if r.known && r.pid != 0 && r.pid != python { // look at that process from now on
				if python = r.pid; python != worker.PID {
					o = reader.readKernel(python)
					reader.addCounters(&o)
					look.first = o
				}
			}
			look.noPython = r.known && r.pid == 0
			if unread = !r.known; len(r.threads) > 0 {
				look.frames = r.threads[0].Frames
				seen[hashStack(seed, 0, look.frames)] = true
			}
		}
		if look.shots == 0 {
			look.first = o
		}
		look.last = o
		switch o.state {
		case 'D':
			look.disk++
		case 'R':
			look.runs++
		}
		if !last {
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}
	after := listProcesses(worker.PID)
	look.took, look.stacks, look.wait = time.Since(begun), len(seen), stacks.KernelWait(look.last.pid)
	look.moved = look.shows(worker.PID, before, after)
	life.Activity, life.Held = look.activity()
	life.Stacks, life.StuckChild = look.stacks, stuckChild(worker.PID, before, after)
	life.BusyChild = busyChild(worker.PID, look.last.pid, before, after)
	life.Switches, life.Output, life.CPU = look.last.main.switches, look.last.output, cpuOf(after)
	others := slices.DeleteFunc(slices.Clone(after), func(p process) bool { return p.id.pid == look.last.pid })
	life.ChildCPU = cpuOf(others)
	life.Share = max(0, life.CPU-cpuOf(before)) / look.took.Seconds()
	return life, socketsOf(after), true
}

// shows reports whether the look has found any sign other than a new stack.
func (l closeLook) shows(pid int, before, after []process) bool {
	w := newWorker(0, pid)
	w.observe(l.first, 0)
	w.python, w.noPython = l.last.pid, l.noPython
	w.observe(l.last, l.took)
	if w.children = nil; before != nil {
		w.addTree(before)
		w.scanned = l.took
		w.addTree(after)
	}
	return w.shown != 0
}

// canRun reports whether a worker can consume the data it receives. If it cannot, the kernel buffers the data.
func canRun(a stacks.Activity) bool {
	return a != stacks.Held && a != stacks.Stopped && a != stacks.Disk && a != stacks.Unknown
}
