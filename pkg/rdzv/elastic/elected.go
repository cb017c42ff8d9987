package elastic

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Elected is the access to a store outside of the agents. The agents elect one of themselves as the leader.
type Elected struct {
	RunID string
	// Dial opens a session.
	Dial   func(ctx context.Context) (coord.Store, error)
	Logger zerolog.Logger

	stop func() // ends the current candidacy; nil before the first
}

// Open implements [Access]. Only one goroutine may call it at a time.
func (e *Elected) Open(ctx context.Context) (coord.Store, error) {
	e.stopCandidacy()
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
			e.Logger.Warn().Err(err).Msg("cannot reach the rendezvous yet; retrying")
		}
		select {
		case <-time.After(dialPause):
		case <-ctx.Done():
		}
	}
	e.stop = newLeaderDriver(store, e.RunID, e.Logger).start(ctx)
	return store, nil
}

func (e *Elected) stopCandidacy() {
	if e.stop != nil {
		e.stop()
	}
}

// Front implements [Access].
func (e *Elected) Front() *rdzv.WorkerStore { return nil }

// Close implements [Access].
func (e *Elected) Close(context.Context) error {
	e.stopCandidacy()
	return nil
}
