package elastic

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Elected is the access to a store outside of the agents, who elect a leader among them.
type Elected struct {
	RunID string
	// Dial opens a session.
	Dial   func(ctx context.Context) (coord.Store, error)
	Logger zerolog.Logger

	resign func() // ends the candidacy that runs; nil before the first
}

// Open implements Access. It is called by one goroutine at a time.
func (e *Elected) Open(ctx context.Context) (coord.Store, error) {
	e.end()
	var store coord.Store
	for warned := false; ; warned = true {
		var err error
		if store, err = e.Dial(ctx); err == nil {
			break
		}
		if ctx.Err() != nil || !errors.Is(err, coord.ErrUnavailable) {
			return nil, err
		}
		if !warned {
			e.Logger.Warn().Err(err).Msg("the rendezvous cannot be reached yet; trying on")
		}
		select {
		case <-time.After(dialPause):
		case <-ctx.Done():
		}
	}
	e.resign = newLead(store, e.RunID, e.Logger).begin(ctx)
	return store, nil
}

// end ends the candidacy, if there is one.
func (e *Elected) end() {
	if e.resign != nil {
		e.resign()
	}
}

// Front implements Access.
func (e *Elected) Front() *rdzv.WorkerStore { return nil }

// Close implements Access.
func (e *Elected) Close(context.Context) error {
	e.end()
	return nil
}
