package pystack

import (
	"errors"
	"fmt"
)

// Thread is one Python thread.
type Thread struct {
	// ID is the kernel's id of the thread, as /proc of this process has it.
	ID int
	// Name is the kernel's name of the thread, of at most 15 bytes. Until 3.13 Python does not set it, so all threads
	// have the name of the program; libraries name their own.
	Name string
	// Main says that this is the thread with which the process began.
	Main bool
	// Interpreter is 0 for the main interpreter. A thread that enters another interpreter is there a second time.
	Interpreter int64
	// Frames are innermost first. A thread that calls no Python function has none.
	Frames []Frame
	// Changed says that the thread called or returned between all attempts to read it. So the outer frames can be from
	// another moment than the inner ones, and the innermost ones, or all, can be missing.
	Changed bool
	// Truncated says that the thread has more frames than the 10,000 that are there.
	Truncated bool
}

// Frame is one call of a Python function.
type Frame struct {
	// File is the path that the code was compiled with, such as "/srv/train.py" or "<string>".
	File string
	// Line counts from 1. It is 0 where Python itself knows no line.
	Line int
	// Function is the qualified name, such as "Trainer.step"; until 3.10 the name alone, such as "step". A module's own
	// code is "<module>".
	Function string
}

// Process is a process whose Python stacks can be read. Only one goroutine at a time may use it.
type Process struct {
	pid      int
	identity identity
	version  Version
	reader   *reader
	numbers  threadNumbers
	// main is the state of the main thread, once it was found.
	main threadState
}

// Open finds Python in a running process. It reads the memory map and some pages of the process; later reads need only
// what changes. The error is an [UnsupportedError] if its stacks cannot be read at all, [ErrExited] if there is no such
// process, [ErrReplaced] if it calls execve meanwhile, and [ErrNoInterpreter] if Python has not started yet. A process
// that is about to call execve is not Python yet, so who starts a program waits until that runs.
func Open(pid int) (*Process, error) {
	p, err := open(pid)
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	return p, nil
}

// Version returns the version of Python that the process runs.
func (p *Process) Version() Version {
	return p.version
}

// Threads reads the stacks of all threads that run Python code or have: the main thread first, the others by
// interpreter and id. A thread that ends meanwhile is missing. The error is [ErrExited] or [ErrReplaced] if the process
// has ended or runs another program since [Open], and [ErrUnreadable] or [ErrNoInterpreter] if no state of it made
// sense; then another attempt can succeed.
func (p *Process) Threads() ([]Thread, error) {
	threads, err := p.readThreads()
	if err = p.settle(err); err != nil {
		return nil, fmt.Errorf("read the threads of process %d: %w", p.pid, err)
	}
	return threads, nil
}

// MainThread reads the stack of the main thread in the main interpreter. It costs a few system calls, however many
// threads there are, so it suits frequent samples. The errors are those of [Process.Threads].
func (p *Process) MainThread() (Thread, error) {
	t, err := p.readMain()
	if err = p.settle(err); err != nil {
		return Thread{}, fmt.Errorf("read the main thread of process %d: %w", p.pid, err)
	}
	return t, nil
}

// settle ends a dump, and returns its error, given that of reading. Whatever was read counts only if the process is
// still the one that Open saw.
func (p *Process) settle(err error) error {
	p.reader.forget()
	if changed := p.identity.check(p.pid, p.reader.mem); changed != nil {
		return changed
	}
	if errors.Is(err, ErrNoInterpreter) || isUnsupported(err) || err == nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnreadable, err)
}
