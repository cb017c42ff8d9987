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
	mu      sync.Mutex
	n       int           // outstanding
	roots   int           // of these, root calls
	last    bool          // no root call begins any more
	rooted  chan struct{} // closed when there is no root call, and will be none
	leaving bool          // Drain or Wait has begun
	over    bool          // nothing begins any more
	shut    chan struct{} // closed with over
	gate    *gate         // what begins has to wait here; nil where it has not
	changed chan struct{} // holds a token where whoever drains has something to look at
	ended   chan struct{} // closed when Drain or Wait has ended, with err
	err     error
}

// gate holds work back while the group counts its member as idle.
type gate struct {
	waiting int
	open    chan struct{} // closed with err set
	err     error
}

// NewWork returns a Work of which nothing is outstanding.
func NewWork() *Work {
	return &Work{changed: make(chan struct{}, 1), ended: make(chan struct{}), rooted: make(chan struct{}), shut: make(chan struct{})}
}

// BeginRoot announces work that comes from nowhere else: a call that is not made for another member's. It returns
// ErrShutdown as soon as the member has begun to drain, or to wait. Its end is EndRoot.
func (w *Work) BeginRoot() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last || w.over {
		return ErrShutdown
	}
	w.n++
	w.roots++
	return nil
}

// Begin announces work that another member's work leads to: a function that runs for it, or a call that such a function makes. It
// returns ErrShutdown once no work can begin any more, because all members are idle or this one has gone. In a member that
// drains and is idle it waits until the group knows that it is not; ctx bounds that, and its cause is the error then.
func (w *Work) Begin(ctx context.Context) error {
	w.mu.Lock()
	g := w.gate
	switch {
	case w.over:
		w.mu.Unlock()
		return ErrShutdown
	case g == nil:
		w.n++
		w.mu.Unlock()
		return nil
	}
	g.waiting++
	w.mu.Unlock()
	w.poke()
	select {
	case <-g.open:
		return g.err
	case <-ctx.Done():
	}
	w.withdraw(g)
	return context.Cause(ctx)
}

// withdraw takes back work that has not waited long enough at g.
func (w *Work) withdraw(g *gate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-g.open:
		if g.err == nil { // it was let in meanwhile
			w.end()
		}
	default:
		g.waiting--
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
	if w.last && w.roots == 0 {
		close(w.rooted)
	}
}

// End is the end of work whose Begin has returned nil.
func (w *Work) End() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end()
}

func (w *Work) end() {
	if w.n == 0 {
		panic("membership: Work.End without Begin")
	}
	w.n--
	if w.n == 0 && w.leaving {
		w.poke()
	}
}

// poke lets whoever drains look again.
func (w *Work) poke() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// WaitRoots refuses root calls from now on, and returns when none of this member is under way; functions still run for others, as what
// those calls wait for may lead back here. It comes before a member leaves a dynamic group, and Wait after that. Where ctx ends
// before, root calls stay refused, and nothing else is. Close ends it with ErrShutdown.
func (w *Work) WaitRoots(ctx context.Context) error {
	w.lastRoots()
	select {
	case <-w.rooted:
		return nil
	default:
	}
	select {
	case <-w.rooted:
		return nil
	case <-w.shut:
		return ErrShutdown
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		return fmt.Errorf("%d calls of this worker are still under way: %w", w.roots, context.Cause(ctx))
	}
}

// lastRoots lets no root call begin any more.
func (w *Work) lastRoots() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.last && w.roots == 0 {
		close(w.rooted)
	}
	w.last = true
}

// Wait refuses root calls from now on, and everything once nothing is outstanding; then it returns. It is for a member that leaves a
// dynamic group, whose others go on. When ctx ends before, everything is refused from then on as well. A second call of
// Wait or [Work.Drain] has the end of the first.
func (w *Work) Wait(ctx context.Context) error {
	if !w.leave() {
		return w.first(ctx)
	}
	for {
		switch w.next() {
		case announce: // nothing is outstanding
			w.refuse()
			return w.finish(nil)
		case stop:
			return w.finish(ErrShutdown)
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
			n := w.refuse()
			return w.finish(fmt.Errorf("%d calls or functions are still under way: %w", n, context.Cause(ctx)))
		}
	}
}

// Close refuses everything from now on, and waits for nothing. A Drain or Wait under way ends with ErrShutdown.
func (w *Work) Close() {
	w.refuse()
	w.poke()
}

// leave begins the end. It returns false if it has begun before.
func (w *Work) leave() bool {
	w.lastRoots()
	w.mu.Lock()
	defer w.mu.Unlock()
	first := !w.leaving
	w.leaving = true
	return first
}

// first waits for the end of the Drain or Wait that was called first.
func (w *Work) first(ctx context.Context) error {
	select {
	case <-w.ended:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refuse lets nothing begin any more, and returns how much is outstanding.
func (w *Work) refuse() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.over = true
		close(w.shut)
	}
	w.release(ErrShutdown)
	return w.n
}

// admit lets in what waits at the gate.
func (w *Work) admit() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gate != nil {
		w.n += w.gate.waiting
		w.release(nil)
	}
}

// release opens the gate with err.
func (w *Work) release(err error) {
	if w.gate != nil {
		w.gate.err = err
		close(w.gate.open)
		w.gate = nil
	}
}

// finish tells all who have called Drain or Wait how it has ended.
func (w *Work) finish(err error) error {
	w.err = err
	close(w.ended)
	return err
}

// move is what a member that drains does next.
type move int

const (
	rest     move = iota // nothing to do until something changes
	announce             // nothing is outstanding, and the gate is shut: say that the member is idle
	resume               // work waits at the gate: say that the member is idle no more
	stop                 // everything is refused
)

func (w *Work) next() move {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.over:
		return stop
	case w.gate == nil && w.n == 0:
		w.gate = &gate{open: make(chan struct{})}
		return announce
	case w.gate != nil && w.gate.waiting > 0:
		return resume
	}
	return rest
}
