package agent

import (
	"context"
	"time"
)

const (
	// maxStackLead is how long before SIGKILL the stacks of the workers are read, at most: a quarter of a short grace.
	maxStackLead = time.Second
	// hungStackTimeout bounds how long the stop of a worker that does not end waits for its stack.
	hungStackTimeout = 500 * time.Millisecond
)

// finalStacks shows the stacks of the workers that still run, once, shortly before SIGKILL. It never delays SIGKILL.
// Only one goroutine may use it.
type finalStacks struct {
	stacks Stacks // nil: show nothing
	signal string // what the workers have received
	due    <-chan time.Time
	killAt time.Time // the earliest that schedule was called with; zero for none
	stop   func()    // nil before show
}

// schedule says when SIGKILL is due. The earliest time counts.
func (s *finalStacks) schedule(kill time.Time) {
	if s.stacks == nil || s.stop != nil || !s.killAt.IsZero() && !kill.Before(s.killAt) {
		return
	}
	s.killAt, s.due = kill, nil
	if left := time.Until(kill); left > 0 {
		s.due = time.After(left - min(maxStackLead, left/4))
	}
}

// show begins to read the stacks. Call it when due.
func (s *finalStacks) show() {
	s.due = nil
	s.stop = inBackground(context.Background(), func(ctx context.Context) {
		ctx, cancel := context.WithDeadline(ctx, s.killAt)
		defer cancel()
		s.stacks.Show(ctx, "workers that still run after "+s.signal+", before SIGKILL:", nil)
	})
}

// end stops showing the stacks.
func (s *finalStacks) end() {
	if s.stop != nil {
		s.stop()
	}
}

// showHung shows the stack of a worker that does not end, and returns in a few words where it is; "" if that is not
// known.
func (a *Agent) showHung(ctx context.Context, localRank int) string {
	if a.opts.Stacks == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, hungStackTimeout)
	defer cancel()
	return a.opts.Stacks.Show(ctx, "a worker has written its error file and does not end:", []int{localRank})
}
