package procs

import (
	"slices"
	"sync"
	"syscall"

	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// Suspension stops every process of the job with SIGSTOP and continues them with SIGCONT, as job control of a shell
// does with a program. The zero value is ready. It acts on the [Supervisor] whose [Options] contain it, which may be
// made later, or never.
//
// A process that was stopped already, by itself or by a debugger, is left alone both times. Workers that start while
// the job is suspended are stopped at once. A group that is being stopped runs to its end: [Group.Stop] continues its
// processes, because a stopped process cannot act on SIGTERM.
//
// If /proc shows another pid namespace, only the process groups of the workers are stopped.
type Suspension struct {
	mu      sync.Mutex
	on      bool
	ending  bool         // a group is being stopped
	workers map[int]bool // pids of workers that were forked and not reaped
	stopped []proctree.Process
}

// maxStopScans bounds the scans of one Suspend. A scan follows each scan that found a process which was forked
// meanwhile. A stopped process cannot fork, so the second scan is usually the last.
const maxStopScans = 100

// Suspend stops the job and returns how many workers run.
func (s *Suspension) Suspend() (workers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = true
	s.stop()
	for pid := range s.workers {
		if !proctree.HasExited(pid) {
			workers++
		}
	}
	return workers
}

// Resume continues what Suspend stopped.
func (s *Suspension) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = false
	s.resume()
}

// Suspended reports whether the job is suspended. It may wait for a Suspend that is under way.
func (s *Suspension) Suspended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.on
}

// stop stops each running process of the job, parents first.
func (s *Suspension) stop() {
	if !s.on || s.ending {
		return
	}
	if !proctree.ProcIsOurs() {
		s.signalWorkers(syscall.SIGSTOP)
		return
	}
	signaled := make(map[proctree.Process]bool) // by pid and start time
	for _, p := range s.stopped {
		signaled[proctree.Process{PID: p.PID, Start: p.Start}] = true
	}
	for range maxStopScans {
		found := false
		for _, p := range liveJob() {
			who := proctree.Process{PID: p.PID, Start: p.Start}
			if p.Stopped() || signaled[who] {
				continue
			}
			found, signaled[who] = true, true
			p.Signal(syscall.SIGSTOP)
			s.stopped = append(s.stopped, p)
		}
		if !found {
			return
		}
	}
}

// resume continues each process that stop stopped, children first.
func (s *Suspension) resume() {
	if !proctree.ProcIsOurs() {
		s.signalWorkers(syscall.SIGCONT)
	}
	for _, p := range slices.Backward(s.stopped) {
		p.Signal(syscall.SIGCONT)
	}
	s.stopped = nil
}

// signalWorkers signals the process group of each worker.
func (s *Suspension) signalWorkers(sig syscall.Signal) {
	for pid := range s.workers {
		_ = syscall.Kill(-pid, sig) // ESRCH: the group has no process left
	}
}

// forked records a new worker, and stops it if the job is suspended.
func (s *Suspension) forked(pid int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.workers == nil {
		s.workers = make(map[int]bool)
	}
	s.workers[pid] = true
	s.stop()
}

// reaped forgets a worker.
func (s *Suspension) reaped(pid int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.workers, pid)
}

// groupEnds continues the processes of a group that is being stopped, and stops none until groupEnded.
func (s *Suspension) groupEnds() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	s.resume()
}

// groupEnded says that no process of the stopped group is left.
func (s *Suspension) groupEnded() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = false
}
