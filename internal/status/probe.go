package status

import (
	"context"
	"sync"
	"time"
)

// probe asks something that may take long, for whoever wants to know: only while somebody does, never twice at a time, and no more often than
// it is worth.
type probe[T any] struct {
	ask   func(ctx context.Context) (T, error)
	every time.Duration // an answer of that age is good enough
	// failed is told the first error, after which nothing is asked any more.
	failed func(error)

	mu    sync.Mutex
	last  T
	at    time.Time     // of last
	busy  chan struct{} // closed when what is being asked was answered; nil while nothing is
	given bool          // it is given up
}

// get returns the last answer, or waits for a new one until ctx ends, and then returns the last. life bounds the asking.
func (p *probe[T]) get(ctx, life context.Context) T {
	p.mu.Lock()
	if p.busy == nil && !p.given && life.Err() == nil && (p.at.IsZero() || time.Since(p.at) >= p.every) {
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
		p.given = true
		p.failed(err)
	}
}

// wait waits for what is being asked, until ctx ends.
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
