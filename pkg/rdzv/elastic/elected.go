package elastic

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
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
	silent := time.AfterFunc(announceSilence, func() {
		e.Logger.Warn().Msg("the rendezvous does not answer yet: " + keepsTrying(ctx))
	})
	defer silent.Stop()
	for warned := false; ; {
		var err error
		if store, err = e.Dial(ctx); err == nil {
			break
		}
		if ctx.Err() != nil || !errors.Is(err, coord.ErrUnavailable) {
			return nil, err
		}
		if !warned {
			silent.Stop()
			warned = true
			e.Logger.Warn().Err(err).Msg("cannot reach the rendezvous yet: " + keepsTrying(ctx))
		}
		select {
		case <-time.After(dialPause):
		case <-ctx.Done():
		}
	}
	e.stop = newLeaderDriver(store, e.RunID, e.Logger).start(ctx)
	return store, nil
}

// announceSilence is how long a store outside of the agents may take to answer at first before the agent says so.
const announceSilence = 1500 * time.Millisecond

// keepsTrying says for how long an agent tries to open a session, which ctx bounds.
func keepsTrying(ctx context.Context) string {
	if deadline, ok := ctx.Deadline(); ok {
		return "this node keeps trying for another " + rounds.FormatLeft(time.Until(deadline))
	}
	return "this node keeps trying"
}

func (e *Elected) stopCandidacy() {
	if e.stop != nil {
		e.stop()
	}
}

// Front implements [Access].
func (e *Elected) Front() *rdzv.WorkerStore { return nil }

// Close implements [Access]. It waits for nobody, since the store goes on without this process.
func (e *Elected) Close(context.Context, bool) error {
	e.stopCandidacy()
	return nil
}
