package liveness

import (
	"errors"

	"github.com/elasticrun/elasticrun/pkg/pystack"
)

// maxSearched bounds how many processes of a worker are searched for Python.
const maxSearched = 64

// pythonReader reads the Python stacks of a worker: of the worker itself, or of its nearest Python descendant. Only one
// goroutine at a time may use it.
type pythonReader struct {
	worker  int              // pid
	process *pystack.Process // nil: not found
	pid     int              // of process
}

// read reads the main thread, or with all every thread.
func (r *pythonReader) read(all bool) stackRead {
	if r.process == nil {
		if done, found := r.find(); !found {
			return done
		}
	}
	threads, err := r.threads(all)
	switch {
	case errors.Is(err, pystack.ErrExited), errors.Is(err, pystack.ErrReplaced):
		r.process = nil
		return stackRead{}
	case errors.Is(err, pystack.ErrNoInterpreter):
		return stackRead{known: true, pid: r.pid}
	case err != nil:
		return stackRead{}
	}
	return stackRead{known: true, pid: r.pid, threads: threads}
}

func (r *pythonReader) threads(all bool) ([]pystack.Thread, error) {
	if all {
		return r.process.Threads()
	}
	main, err := r.process.MainThread()
	return []pystack.Thread{main}, err
}

// find opens the worker's Python process. If it opens none, it returns the read to report for the worker.
func (r *pythonReader) find() (_ stackRead, found bool) {
	pid, p, err := r.worker, (*pystack.Process)(nil), error(nil)
	if p, err = pystack.Open(pid); err != nil && !starts(err) {
		all := listProcesses(r.worker)
		for _, child := range all[:min(maxSearched, len(all))] {
			if child.id.pid == r.worker {
				continue
			}
			if p, err = pystack.Open(child.id.pid); err == nil || starts(err) {
				pid = child.id.pid
				break
			}
		}
	}
	switch {
	case err == nil:
		r.process, r.pid = p, pid
		return stackRead{}, true
	case starts(err):
		return stackRead{known: true, pid: pid}, false
	case errors.Is(err, pystack.ErrExited) && !mainEnded(r.worker): // if only its main thread has, it counts as no Python
		return stackRead{}, false
	}
	return stackRead{known: true}, false
}

// starts reports whether a process is Python but has no frames yet.
func starts(err error) bool {
	return errors.Is(err, pystack.ErrNoInterpreter) || errors.Is(err, pystack.ErrReplaced)
}
