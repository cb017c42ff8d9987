package pystack

import (
	"cmp"
	"errors"
	"slices"
)

// errGone says that the kernel has no such thread any more.
var errGone = errors.New("the thread has ended")

// readThreads reads all threads, in the order that Threads promises.
func (p *Process) readThreads() ([]Thread, error) {
	states, err := p.reader.threadStates()
	if err != nil {
		return nil, err
	}
	if err := p.ids.refresh(p.pid); err != nil {
		return nil, err
	}
	threads := make([]Thread, 0, len(states))
	anyRead := len(states) == 0
	var failed error
	for _, s := range states {
		t, err := p.readThread(s)
		switch {
		case errors.Is(err, errGone):
			continue
		case errors.Is(err, ErrExited), isUnsupported(err):
			return nil, err
		case err != nil:
			failed = err
		default:
			anyRead = true
		}
		threads = append(threads, t)
	}
	if !anyRead && failed != nil {
		return nil, failed
	}
	slices.SortStableFunc(threads, func(a, b Thread) int {
		switch {
		case a.Main && !b.Main:
			return -1
		case b.Main && !a.Main:
			return 1
		}
		return cmp.Or(cmp.Compare(a.Interpreter, b.Interpreter), cmp.Compare(a.ID, b.ID))
	})
	return threads, nil
}

// readThread reads one thread. With an error other than errGone the thread is valid and has no frames.
func (p *Process) readThread(s threadState) (Thread, error) {
	id, ok := p.ids.kernelID(p.reader, s.id)
	if !ok {
		return Thread{}, errGone
	}
	name, err := threadName(p.pid, id)
	if err != nil {
		return Thread{}, errGone
	}
	t := Thread{ID: id, Name: name, Main: id == p.pid, Interpreter: s.interpreterID}
	got, err := p.reader.readStack(s)
	if err != nil {
		if !p.reader.stillThere(s) {
			err = errGone
		}
		t.Changed = true
		return t, err
	}
	t.Frames, t.Changed, t.Truncated = got.frames, got.changed, got.truncated
	return t, nil
}

// readMain reads the main thread. Its state does not move while the process lives, so the list of threads is read only
// once.
func (p *Process) readMain() (Thread, error) {
	p.reader.forget()
	if p.main.addr == 0 || !p.reader.stillThere(p.main) {
		found, err := p.findMain()
		if err != nil {
			return Thread{}, err
		}
		p.main = found
	}
	return p.readThread(p.main)
}

// findMain returns the state of the main thread in the interpreter that was made first.
func (p *Process) findMain() (threadState, error) {
	states, err := p.reader.threadStates()
	if err != nil {
		return threadState{}, err
	}
	if err := p.ids.refresh(p.pid); err != nil {
		return threadState{}, err
	}
	found := threadState{}
	for _, s := range states {
		id, ok := p.ids.kernelID(p.reader, s.id)
		if ok && id == p.pid && (found.addr == 0 || s.interpreterID < found.interpreterID) {
			found = s
		}
	}
	if found.addr == 0 {
		return found, ErrNoInterpreter
	}
	return found, nil
}
