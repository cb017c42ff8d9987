package membership

import (
	"context"
	"fmt"
	"sync"
)

// Work counts the outstanding work of a member: its own calls under way, and functions that run for others. At the end
// of a group it waits for outstanding work and refuses new work. Create it with NewWork. Any number of goroutines may
// use it.
//
// Call Begin before each piece of work starts, that is, before a call is sent and before a function runs. Each Begin
// needs one End, and each BeginRoot one EndRoot. Begin does not block unless the member drains.
type Work struct {
	mu          sync.Mutex
	outstanding int           // pieces of work, including root calls
	roots       int           // root calls
	rootsClosed bool          // new root calls are refused
	rootsDone   chan struct{} // closed once rootsClosed is set and roots is 0
	ending      bool          // Drain or Wait has started
	closed      bool          // all new work is refused
	closing     chan struct{} // closed when closed is set
	barrier     *barrier      // new work waits here; nil if it need not wait
	changed     chan struct{} // holds a token if nextAction must be called again
	ended       chan struct{} // closed once Drain or Wait has ended; err is set before
	err         error
}

// barrier holds back new work while the group counts its member as idle.
type barrier struct {
	waiting int
	open    chan struct{} // closed once err is set
	err     error
}

// NewWork returns a Work without outstanding work.
func NewWork() *Work {
	return &Work{
		changed: make(chan struct{}, 1), ended: make(chan struct{}),
		rootsDone: make(chan struct{}), closing: make(chan struct{}),
	}
}

// BeginRoot announces a root call: a call that this member does not make for another member. It returns ErrShutdown
// once the member has started to drain or to wait. After it has returned nil, the caller must call EndRoot.
func (w *Work) BeginRoot() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rootsClosed || w.closed {
		return ErrShutdown
	}
	w.outstanding++
	w.roots++
	return nil
}

// Begin announces work on behalf of another member: a function that runs for it, or a call that such a function makes.
// It returns ErrShutdown if no new work is allowed because all members are idle or this one has left. If the member
// drains and is idle, Begin waits until the group knows that it is no longer idle. ctx limits this wait, and Begin then
// returns its cause.
func (w *Work) Begin(ctx context.Context) error {
	w.mu.Lock()
	b := w.barrier
	switch {
	case w.closed:
		w.mu.Unlock()
		return ErrShutdown
	case b == nil:
		w.outstanding++
		w.mu.Unlock()
		return nil
	}
	b.waiting++
	w.mu.Unlock()
	w.notify()
	select {
	case <-b.open:
		return b.err
	case <-ctx.Done():
	}
	w.cancelWait(b)
	return context.Cause(ctx)
}

// cancelWait removes work whose context ended while it waited at b.
func (w *Work) cancelWait(b *barrier) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-b.open:
		if b.err == nil { // admitted meanwhile
			w.end()
		}
	default:
		b.waiting--
	}
}

// EndRoot ends a root call whose BeginRoot returned nil.
func (w *Work) EndRoot() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.roots == 0 {
		panic("membership: Work.EndRoot without BeginRoot")
	}
	w.roots--
	w.end()
	if w.rootsClosed && w.roots == 0 {
		close(w.rootsDone)
	}
}

// End ends work whose Begin returned nil.
func (w *Work) End() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end()
}

func (w *Work) end() {
	if w.outstanding == 0 {
		panic("membership: Work.End without Begin")
	}
	w.outstanding--
	if w.outstanding == 0 && w.ending {
		w.notify()
	}
}

// notify makes Drain or Wait call nextAction again.
func (w *Work) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// WaitRoots refuses new root calls, and returns once this member has none under way. Functions still run for other
// members, because the root calls may depend on them. Call it before a member leaves a dynamic group, and call Wait
// after that. If ctx ends first, only root calls stay refused. Close makes WaitRoots return ErrShutdown.
func (w *Work) WaitRoots(ctx context.Context) error {
	w.closeRoots()
	select {
	case <-w.rootsDone:
		return nil
	default:
	}
	select {
	case <-w.rootsDone:
		return nil
	case <-w.closing:
		return ErrShutdown
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		return fmt.Errorf("%d calls of this worker are still under way: %w", w.roots, context.Cause(ctx))
	}
}

// closeRoots refuses new root calls.
func (w *Work) closeRoots() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.rootsClosed && w.roots == 0 {
		close(w.rootsDone)
	}
	w.rootsClosed = true
}

// Wait refuses new root calls, waits until no work is outstanding, and then refuses all work. It is for a member that
// leaves a dynamic group while the others continue. If ctx ends first, all work is refused from then on too. A second
// call of Wait or [Work.Drain] returns the result of the first.
func (w *Work) Wait(ctx context.Context) error {
	if !w.startEnd() {
		return w.waitEnd(ctx)
	}
	for {
		switch w.nextAction() {
		case announceIdle: // no work is outstanding
			w.refuseAll()
			return w.finish(nil)
		case stop:
			return w.finish(ErrShutdown)
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
			n := w.refuseAll()
			return w.finish(fmt.Errorf("%d calls or functions are still under way: %w", n, context.Cause(ctx)))
		}
	}
}

// Close refuses all work and does not wait. A running Drain, Wait or WaitRoots ends with ErrShutdown.
func (w *Work) Close() {
	w.refuseAll()
	w.notify()
}

// startEnd marks the start of Drain or Wait. It returns false if one of them has started before.
func (w *Work) startEnd() bool {
	w.closeRoots()
	w.mu.Lock()
	defer w.mu.Unlock()
	first := !w.ending
	w.ending = true
	return first
}

// waitEnd waits for the result of the first Drain or Wait.
func (w *Work) waitEnd(ctx context.Context) error {
	select {
	case <-w.ended:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refuseAll refuses all new work and returns the amount of outstanding work.
func (w *Work) refuseAll() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed = true
		close(w.closing)
	}
	w.release(ErrShutdown)
	return w.outstanding
}

// admit starts the work that waits at the barrier.
func (w *Work) admit() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.barrier != nil {
		w.outstanding += w.barrier.waiting
		w.release(nil)
	}
}

// release opens the barrier with err.
func (w *Work) release(err error) {
	if w.barrier != nil {
		w.barrier.err = err
		close(w.barrier.open)
		w.barrier = nil
	}
}

// finish publishes the result of Drain or Wait.
func (w *Work) finish(err error) error {
	w.err = err
	close(w.ended)
	return err
}

// action is the next action of a member that drains.
type action int

const (
	nothing      action = iota // wait for a change
	announceIdle               // no work is outstanding and the barrier is closed: report that the member is idle
	resume                     // work waits at the barrier: report that the member is no longer idle
	stop                       // all work is refused
)

func (w *Work) nextAction() action {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return stop
	case w.barrier == nil && w.outstanding == 0:
		w.barrier = &barrier{open: make(chan struct{})}
		return announceIdle
	case w.barrier != nil && w.barrier.waiting > 0:
		return resume
	}
	return nothing
}
