package procs

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// The errors of [Group.Member].
var (
	// ErrGone means that the process has ended.
	ErrGone = errors.New("the process has ended")
	// ErrNotMember means that the process is not known to belong to the group.
	ErrNotMember = errors.New("the process is neither a worker nor a descendant of one")
)

// Member is a process of a group: a worker or a descendant of one.
type Member struct {
	// LocalRank is the rank of the worker. It is -1 if that is not known, because the process has left the session of the
	// worker, and its parent has ended.
	LocalRank int
	// Signal sends a signal to this process alone. It does nothing if the process has ended.
	Signal func(syscall.Signal)
}

// Member finds a process of the group that had started by the given time. A process with the same pid that started
// later is another one; then Member returns [ErrGone].
func (g *Group) Member(pid int, before time.Time) (Member, error) {
	for _, w := range g.workers {
		if pid > 0 && w.pid == pid { // the pid is the worker's until Stop reaps it
			g.mu.Lock()
			exited := w.exited
			g.mu.Unlock()
			if exited {
				return Member{}, ErrGone
			}
			return Member{LocalRank: w.spec.LocalRank, Signal: func(sig syscall.Signal) { _ = syscall.Kill(pid, sig) }}, nil
		}
	}
	p, ok := proctree.Find(pid)
	switch {
	case ok && (p.Dead() || !p.StartedBy(before)):
		return Member{}, ErrGone
	case ok:
	case pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH): // signal 0 sends nothing
		return Member{}, ErrGone
	default:
		return Member{}, ErrNotMember
	}
	rank, ours := g.owner(p)
	if !ours {
		return Member{}, ErrNotMember
	}
	return Member{LocalRank: rank, Signal: p.Signal}, nil
}

// owner returns the local rank of the worker that p descends from, or -1 if the worker is not known. ours is false if p
// does not belong to the job.
func (g *Group) owner(p proctree.Process) (localRank int, ours bool) {
	self, ok := proctree.Find(os.Getpid())
	if !ok || p.Session == self.Session {
		return -1, false
	}
	workers := make(map[int]int, len(g.workers)) // local ranks by pid
	for _, w := range g.workers {
		if w.pid != 0 {
			workers[w.pid] = w.spec.LocalRank
		}
	}
	localRank, known := workers[p.Session]
	const maxDepth = 1000 // of a tree of processes that changes while it is read
	for range maxDepth {
		if rank, found := workers[p.PID]; found {
			return rank, true
		}
		if p.PPID == self.PID { // adopted, since its parent has ended
			if !known {
				localRank = -1
			}
			return localRank, true
		}
		if p, ok = proctree.Find(p.PPID); !ok {
			return -1, false
		}
	}
	return -1, false
}
