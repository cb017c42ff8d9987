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
	// Main is true for the first thread of the process.
	Main bool
	// Interpreter is 0 for the main interpreter. A thread that enters another interpreter is listed once for each.
	Interpreter int64
	// Frames are innermost first. A thread that calls no Python function has none.
	Frames []Frame
	// Changed says that the thread called or returned during each attempt to read it. So outer and inner frames can be
	// from different moments, and the innermost frames, or all, can be missing.
	Changed bool
	// Truncated says that the thread has more than the 10,000 frames in Frames.
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
	ids      threadIDs
	main     threadState // of the main thread, once MainThread has found it
}

// Open finds Python in a running process. It reads the memory map and some pages of the process, so that later reads
// need fewer. The error is an [UnsupportedError] if the stacks cannot be read at all, [ErrExited] if there is no such
// process, [ErrReplaced] if it calls execve meanwhile, and [ErrNoInterpreter] if Python has not started yet. A new
// process is not Python before its execve, so a caller that starts a program waits for that before it calls Open.
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

// Threads reads the stacks of all threads that run Python code or have done so: the main thread first, the others by
// interpreter and id. A thread that ends meanwhile is missing. The error is [ErrExited] or [ErrReplaced] if the process
// has ended or runs another program since [Open]. It is [ErrUnreadable] or [ErrNoInterpreter] if the memory never made
// sense; then another attempt can succeed.
func (p *Process) Threads() ([]Thread, error) {
	threads, err := p.readThreads()
	if err = p.finish(err); err != nil {
		return nil, fmt.Errorf("read the threads of process %d: %w", p.pid, err)
	}
	return threads, nil
}

// MainThread reads the stack of the main thread in the main interpreter. It costs a few system calls, however many
// threads the process has, so it suits frequent samples. The errors are those of [Process.Threads].
func (p *Process) MainThread() (Thread, error) {
	t, err := p.readMain()
	if err = p.finish(err); err != nil {
		return Thread{}, fmt.Errorf("read the main thread of process %d: %w", p.pid, err)
	}
	return t, nil
}

// finish ends a dump, and returns its error, given that of reading. What was read counts only if the process is still
// the one that Open saw.
func (p *Process) finish(err error) error {
	p.reader.forget()
	if changed := p.identity.check(p.pid, p.reader.mem); changed != nil {
		return changed
	}
	if errors.Is(err, ErrNoInterpreter) || isUnsupported(err) || err == nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnreadable, err)
}
