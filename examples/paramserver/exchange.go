package main

import (
	"context"
	"fmt"
	"sync"
)

// exchange is where the server and its trainers meet: trainers take the newest weights and leave gradients, the server
// takes the gradients of a step when all are there and leaves new weights. Whoever has to wait is told; nobody asks twice.
// It is safe for concurrent use.
type exchange struct {
	mu        sync.Mutex
	newest    parameters
	gradients [][]float64   // for the step after newest, by rank-1; nil: not here yet
	missing   int           // how many of them are nil
	complete  chan struct{} // closed when none is
	replaced  chan struct{} // closed when newest is the past
}

func newExchange(begin parameters, trainers int) *exchange {
	x := &exchange{gradients: make([][]float64, trainers), replaced: make(chan struct{})}
	x.publish(begin)
	return x
}

// pull waits until so many steps are done and returns the newest weights. A trainer that begins pulls 0: wherever the
// server is, it gets the weights to go on with.
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

// push adds a gradient to the next step. The trainer may have one in each step, and not for a step that is done.
func (x *exchange) push(rank int, g gradient) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case rank <= serverRank || rank > len(x.gradients):
		return fmt.Errorf("rank %d is no trainer: want 1 to %d", rank, len(x.gradients))
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

// publish lets everybody go on with new weights.
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
