package agent

import (
	"context"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
)

const (
	// maxStackLead is how long before SIGKILL the stacks of the workers are read, at most: a quarter of a short grace.
	maxStackLead = time.Second
	// hungStackTimeout bounds how long the stop of a worker that does not end waits for its stack.
	hungStackTimeout = 500 * time.Millisecond
)

// finalStacks shows once, shortly before SIGKILL, where the workers are that still run. It never delays SIGKILL. One
// goroutine uses it.
type finalStacks struct {
	stacks Stacks // nil: show nothing
	signal string // that the workers have received
	due    <-chan time.Time
	killAt time.Time // the earliest that before was called with; zero for none
	cancel context.CancelFunc
	done   chan struct{} // closed when the stacks were shown; nil before show
}

// before says when SIGKILL is due. The earliest time counts.
func (s *finalStacks) before(kill time.Time) {
	if s.stacks == nil || s.done != nil || !s.killAt.IsZero() && !kill.Before(s.killAt) {
		return
	}
	s.killAt, s.due = kill, nil
	if left := time.Until(kill); left > 0 {
		s.due = time.After(left - min(maxStackLead, left/4))
	}
}

// show begins to read the stacks. Call it when due.
func (s *finalStacks) show() {
	ctx, cancel := context.WithDeadline(context.Background(), s.killAt)
	s.due, s.cancel, s.done = nil, cancel, make(chan struct{})
	go func() {
		defer close(s.done)
		s.stacks.Show(ctx, "workers that still run after "+s.signal+", before SIGKILL:", nil)
	}()
}

// end gives up what is not shown yet.
func (s *finalStacks) end() {
	if s.done != nil {
		s.cancel()
		<-s.done
	}
}

// showHung shows where a worker is that does not end, and returns that in a few words; "" if it is not known.
func (a *Agent) showHung(ctx context.Context, x *procs.Exit) string {
	if a.opts.Stacks == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, hungStackTimeout)
	defer cancel()
	return a.opts.Stacks.Show(ctx, "a worker has written its error file and does not end:", []int{x.LocalRank})
}
