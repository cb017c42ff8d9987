package stacks

import (
	"errors"

	"github.com/elasticrun/elasticrun/pkg/pystack"
)

// maxProcesses bounds the processes of a worker in which Read looks for Python.
const maxProcesses = 64

// problemEnded is the Problem of a worker whose process has ended.
const problemEnded = "the process has ended"

// Read returns w with what the worker is doing. Its PID must be a child of this process that has not been reaped, so
// that no other process has this pid. If the worker is not Python, Read looks at its descendants, the nearest first.
// allThreads asks for all threads instead of the main one, and for the processes below the worker.
func Read(w Worker, allThreads bool) Worker {
	w.State, w.Wait = kernelState(w.PID)
	if w.State == "" {
		w.Problem = problemEnded
		return w
	}
	var first error
	for _, pid := range descendants(w.PID, maxProcesses) {
		err := w.readPython(pid, allThreads)
		if err == nil {
			return w
		}
		if first == nil {
			first = err
		}
	}
	w.Problem = first.Error()
	if state, _ := kernelState(w.PID); w.Problem == problemEnded && state != "" && state != "zombie" {
		w.Problem = "its main thread has ended, and others run" // its memory cannot be read then
	}
	return w
}

// readPython reads the threads of one process.
func (w *Worker) readPython(pid int, allThreads bool) error {
	p, err := pystack.Open(pid)
	if err != nil {
		return reason(err)
	}
	threads, err := p.Threads()
	if err != nil {
		return reason(err)
	}
	w.PythonPID, w.Python = pid, p.Version().String()
	w.State, w.Wait = kernelState(pid)
	if allThreads {
		w.Children = readChildren(pid)
	} else {
		threads = threads[:min(1, len(threads))]
	}
	for _, t := range threads {
		w.Threads = append(w.Threads, threadOf(t))
	}
	return nil
}

// reason returns the cause of an error without the pid, which differs among workers. What an UnsupportedError wraps is
// part of the cause.
func reason(err error) error {
	if unsupported, ok := errors.AsType[*pystack.UnsupportedError](err); ok {
		return unsupported
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err
}
