package main

import (
	"context"
	"fmt"
	"sync"
)

// exchange passes data between the server and its trainers. Trainers take the newest weights and leave gradients. The
// server takes the gradients of a step when they are complete and leaves new weights. Waiting uses channels, not
// polling. It is safe for concurrent use.
type exchange struct {
	mu        sync.Mutex
	newest    parameters
	gradients [][]float64   // for the step after newest, by rank-1; nil if missing
	missing   int           // number of nil gradients
	complete  chan struct{} // closed when none is missing
	replaced  chan struct{} // closed when newest is replaced
}

func newExchange(begin parameters, trainers int) *exchange {
	x := &exchange{gradients: make([][]float64, trainers), replaced: make(chan struct{})}
	x.publish(begin)
	return x
}

// pull waits until that number of steps is done and returns the newest weights. A trainer that starts pulls 0, and gets
// the weights to continue with.
func (x *exchange) pull(ctx context.Context, steps int) (parameters, error) {
	for {
		x.mu.Lock()
		newest, replaced := x.newest, x.replaced
		x.mu.Unlock()
		if newest.Steps >= steps {
			return newest, nil
		}
		select {
		case <-replaced:
		case <-ctx.Done():
			return parameters{}, fmt.Errorf("wait for step %d: %w", steps, context.Cause(ctx))
		}
	}
}

// push adds a gradient to the next step. It rejects a second gradient of a trainer for the same step, and a gradient
// for another step.
func (x *exchange) push(rank int, g gradient) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case rank <= serverRank || rank > len(x.gradients):
		return fmt.Errorf("rank %d is not a trainer: want 1 to %d", rank, len(x.gradients))
	case len(g.Values) != weightCount:
		return fmt.Errorf("a gradient of %d values, want %d", len(g.Values), weightCount)
	case g.Steps != x.newest.Steps:
		return fmt.Errorf("a gradient of the weights after %d steps, want %d", g.Steps, x.newest.Steps)
	case x.gradients[rank-1] != nil:
		return fmt.Errorf("a second gradient of the weights after %d steps", g.Steps)
	}
	x.gradients[rank-1] = g.Values
	x.missing--
	if x.missing == 0 {
		close(x.complete)
	}
	return nil
}

// collect waits until every trainer has pushed and returns the gradients in rank order.
func (x *exchange) collect(ctx context.Context) ([][]float64, error) {
	x.mu.Lock()
	gradients, complete := x.gradients, x.complete
	x.mu.Unlock()
	select {
	case <-complete:
		return gradients, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for gradients: %w", context.Cause(ctx))
	}
}

// publish sets new weights and wakes the waiting trainers.
func (x *exchange) publish(p parameters) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.newest = p
	x.missing = len(x.gradients)
	x.gradients = make([][]float64, x.missing)
	x.complete = make(chan struct{})
	close(x.replaced)
	x.replaced = make(chan struct{})
}
