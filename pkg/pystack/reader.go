package pystack

import (
	"cmp"
	"errors"
	"fmt"
)

const (
	// maxInterpreters bounds the interpreters of a process, maxThreads the threads of all of them.
	maxInterpreters = 1024
	maxThreads      = 1 << 16
)

// sizeOffset is where PyVarObject has its size.
const sizeOffset = 16

// reader reads Python's data in a memory. It does not depend on processes.
type reader struct {
	mem     memory
	runtime uint64 // address of _PyRuntime
	layout  *layout

	// stack has the pages of one thread's frames, objects those of everything else.
	stack, objects *snapshot
	// codeType is the address of PyCode_Type; 0 until a code object was read.
	codeType uint64
	// Code objects by address: codes are those of earlier dumps, before those of earlier reads of this thread, and seen
	// those of the current read.
	codes, before, seen map[uint64]*code
	// calls and last are the frames of the current and of the previous read of a thread.
	calls, last []call
}

func newReader(mem memory, runtime uint64, l *layout) *reader {
	return &reader{
		mem: mem, runtime: runtime, layout: l, stack: newSnapshot(mem), objects: newSnapshot(mem),
		codes: map[uint64]*code{}, before: map[uint64]*code{}, seen: map[uint64]*code{},
	}
}

// forget makes the next reads fresh.
func (r *reader) forget() {
	r.stack.reset()
	r.objects.reset()
	clear(r.seen)
}

// threadState is a PyThreadState.
type threadState struct {
	addr          uint64
	interpreter   uint64 // address of its PyInterpreterState
	interpreterID int64
	// id is the kernel's id of the thread, or the result of pthread_self if the layout has no other.
	id uint64
}

// threadStates returns the thread states of all interpreters. It retries while the lists change.
func (r *reader) threadStates() ([]threadState, error) {
	var states []threadState
	err := errTorn
	for range maxAttempts {
		r.forget()
		if states, err = r.tryThreadStates(); err == nil || errors.Is(err, ErrExited) || isUnsupported(err) {
			break
		}
	}
	return states, err
}

// tryThreadStates walks the lists of interpreters and threads once.
func (r *reader) tryThreadStates() ([]threadState, error) {
	l := r.layout
	at, err := readWord(r.mem, r.runtime+l.interpretersHead)
	if err != nil {
		return nil, err
	}
	if at == 0 {
		return nil, ErrNoInterpreter
	}
	var states []threadState
	for range maxInterpreters {
		if at == 0 {
			return states, nil
		}
		b, err := r.objects.view(at, max(l.interpreterNext, l.interpreterID, l.threadsHead)+8)
		if err != nil {
			return nil, err
		}
		next, id, head := word(b, l.interpreterNext), int64(word(b, l.interpreterID)), word(b, l.threadsHead)
		if id < 0 {
			return nil, errTorn
		}
		if states, err = r.appendThreads(states, threadState{addr: head, interpreter: at, interpreterID: id}); err != nil {
			return nil, err
		}
		at = next
	}
	return nil, errTorn
}

// appendThreads adds the thread states of one interpreter. s has the address of the first.
func (r *reader) appendThreads(states []threadState, s threadState) ([]threadState, error) {
	l := r.layout
	size := max(l.threadPrevious, l.threadNext, l.threadInterpreter, l.threadFrame, l.threadID, l.nativeID) + 8
	for previous := uint64(0); s.addr != 0; {
		if len(states) == maxThreads {
			return nil, errTorn
		}
		b, err := r.objects.view(s.addr, size)
		if err != nil {
			return nil, err
		}
		// In freed memory both fields are wrong. In a list that loops the first one is.
		if word(b, l.threadPrevious) != previous || word(b, l.threadInterpreter) != s.interpreter {
			return nil, errTorn
		}
		if s.id = word(b, cmp.Or(l.nativeID, l.threadID)); s.id != 0 { // 0: no thread runs it yet
			states = append(states, s)
		}
		previous, s.addr = s.addr, word(b, l.threadNext)
	}
	return states, nil
}

// stillThere reports whether a thread state still belongs to the thread that it belonged to.
func (r *reader) stillThere(s threadState) bool {
	owner, err := readWord(r.mem, s.addr+r.layout.threadInterpreter)
	if err != nil || owner != s.interpreter {
		return false
	}
	id, err := readWord(r.mem, s.addr+cmp.Or(r.layout.nativeID, r.layout.threadID))
	return err == nil && id == s.id
}

// checkType returns an error unless an object of that type is a code object.
func (r *reader) checkType(typ uint64) error {
	if r.codeType != 0 {
		if typ == r.codeType {
			return nil
		}
		return errTorn
	}
	name, err := readWord(r.objects, typ+r.layout.typeName)
	if err != nil {
		return err
	}
	b, err := r.objects.view(name, uint64(len("code\x00")))
	if err != nil {
		return err
	}
	if string(b) != "code\x00" {
		return fmt.Errorf("no code object: %w", errTorn)
	}
	r.codeType = typ
	return nil
}

// isUnsupported reports whether an error is an UnsupportedError.
func isUnsupported(err error) bool {
	_, ok := errors.AsType[*UnsupportedError](err)
	return ok
}
