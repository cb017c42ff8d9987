package status

import (
	"context"
	"sync"
	"time"
)

// probe caches a slow measurement. It measures only on demand, never twice at the same time, and not before the last
// result is old enough.
type probe[T any] struct {
	ask   func(ctx context.Context) (T, error)
	every time.Duration // a result of up to this age is used again
	// failed is called with the first error, after which nothing is measured any more. It is called with mu locked.
	failed func(error)

	mu      sync.Mutex
	last    T
	at      time.Time     // of last
	busy    chan struct{} // closed when the running measurement ends; nil if none runs
	stopped bool          // a measurement has failed
}

// get returns a result that is not too old. If it must measure and ctx ends first, it returns the last result. life
// bounds the measurement, which may outlive ctx.
func (p *probe[T]) get(ctx, life context.Context) T {
	p.mu.Lock()
	if p.busy == nil && !p.stopped && life.Err() == nil && (p.at.IsZero() || time.Since(p.at) >= p.every) {
		p.busy = make(chan struct{})
		go p.run(life)
	}
	busy := p.busy
	p.mu.Unlock()
	if busy != nil {
		select {
		case <-busy:
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

func (p *probe[T]) run(life context.Context) {
	answer, err := p.ask(life)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.busy)
	p.busy = nil
	switch {
	case err == nil:
		p.last, p.at = answer, time.Now()
	case life.Err() == nil:
		p.stopped = true
		p.failed(err)
	}
}

// wait waits for a running measurement, until ctx ends.
func (p *probe[T]) wait(ctx context.Context) {
	p.mu.Lock()
	busy := p.busy
	p.mu.Unlock()
	if busy == nil {
		return
	}
	select {
	case <-busy:
	case <-ctx.Done():
	}
}
