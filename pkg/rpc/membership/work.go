package membership

import (
	"context"
	"fmt"
	"sync"
)

// Work counts what a member has to do with others: calls of its own that are under way, and functions that run for others. At the
// end of a group it lets all of that end, and refuses what is new. Use NewWork. Any number of goroutines may use it.
//
// Every piece of work is announced by Begin before it begins, which is before a call goes out and before a function runs, and
// has one End, or EndRoot. Until the member drains, Begin waits for nobody.
type Work struct {
	mu          sync.Mutex
	outstanding int           // outstanding
	roots       int           // of these, root calls
	rootsClosed bool          // no root call begins any more
	rootsDone   chan struct{} // closed when there is no root call, and will be none
	ending      bool          // Drain or Wait has begun
	closed      bool          // nothing begins any more
	closing     chan struct{} // closed with over
	barrier     *barrier      // what begins has to wait here; nil where it has not
	changed     chan struct{} // holds a token where whoever drains has something to look at
	ended       chan struct{} // closed when Drain or Wait has ended, with err
	err         error
}

// gate holds work back while the group counts its member as idle.
type barrier struct {
	waiting int
	open    chan struct{} // closed with err set
	err     error
}

// NewWork returns a Work of which nothing is outstanding.
func NewWork() *Work {
	return &Work{changed: make(chan struct{}, 1), ended: make(chan struct{}), rootsDone: make(chan struct{}), closing: make(chan struct{})}
}

// BeginRoot announces work that comes from nowhere else: a call that is not made for another member's. It returns
// ErrShutdown as soon as the member has begun to drain, or to wait. Its end is EndRoot.
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

// Begin announces work that another member's work leads to: a function that runs for it, or a call that such a function makes. It
// returns ErrShutdown once no work can begin any more, because all members are idle or this one has gone. In a member that
// drains and is idle it waits until the group knows that it is not; ctx bounds that, and its cause is the error then.
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

// withdraw takes back work that has not waited long enough at g.
func (w *Work) cancelWait(b *barrier) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-b.open:
		if b.err == nil { // it was let in meanwhile
			w.end()
		}
	default:
		b.waiting--
	}
}

// EndRoot is the end of a root call whose BeginRoot has returned nil.
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

// End is the end of work whose Begin has returned nil.
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

// poke lets whoever drains look again.
func (w *Work) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// WaitRoots refuses root calls from now on, and returns when none of this member is under way; functions still run for others, as what
// those calls wait for may lead back here. It comes before a member leaves a dynamic group, and Wait after that. Where ctx ends
// before, root calls stay refused, and nothing else is. Close ends it with ErrShutdown.
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

// lastRoots lets no root call begin any more.
func (w *Work) closeRoots() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.rootsClosed && w.roots == 0 {
		close(w.rootsDone)
	}
	w.rootsClosed = true
}

// Wait refuses root calls from now on, and everything once nothing is outstanding; then it returns. It is for a member that leaves a
// dynamic group, whose others go on. When ctx ends before, everything is refused from then on as well. A second call of
// Wait or [Work.Drain] has the end of the first.
func (w *Work) Wait(ctx context.Context) error {
	if !w.startEnd() {
		return w.waitEnd(ctx)
	}
	for {
		switch w.nextAction() {
		case announceIdle: // nothing is outstanding
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

// Close refuses everything from now on, and waits for nothing. A Drain or Wait under way ends with ErrShutdown.
func (w *Work) Close() {
	w.refuseAll()
	w.notify()
}

// leave begins the end. It returns false if it has begun before.
func (w *Work) startEnd() bool {
	w.closeRoots()
	w.mu.Lock()
	defer w.mu.Unlock()
	first := !w.ending
	w.ending = true
	return first
}

// first waits for the end of the Drain or Wait that was called first.
func (w *Work) waitEnd(ctx context.Context) error {
	select {
	case <-w.ended:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refuse lets nothing begin any more, and returns how much is outstanding.
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

// admit lets in what waits at the gate.
func (w *Work) admit() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.barrier != nil {
		w.outstanding += w.barrier.waiting
		w.release(nil)
	}
}

// release opens the gate with err.
func (w *Work) release(err error) {
	if w.barrier != nil {
		w.barrier.err = err
		close(w.barrier.open)
		w.barrier = nil
	}
}

// finish tells all who have called Drain or Wait how it has ended.
func (w *Work) finish(err error) error {
	w.err = err
	close(w.ended)
	return err
}

// move is what a member that drains does next.
type action int

const (
	nothing      action = iota // nothing to do until something changes
	announceIdle               // nothing is outstanding, and the gate is shut: say that the member is idle
	resume                     // work waits at the gate: say that the member is idle no more
	stop                       // everything is refused
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
