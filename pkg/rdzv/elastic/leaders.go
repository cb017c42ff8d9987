package elastic

import (
	"context"
	"sync"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// Leaders lead all runs of a store that is in a process of its own, in that process: whichever agent dies, the leader does not.
type Leaders struct {
	// Open returns a session of the store, for one leader; it lives as long as the store.
	Open   func() (coord.Store, error)
	Logger zerolog.Logger
}

// Run leads each run whose id comes from joined, which may name it more than once, until ctx ends. It returns when no leader is left.
func (l *Leaders) Run(ctx context.Context, joined <-chan string) {
	var leading sync.WaitGroup
	defer leading.Wait()
	known := map[string]bool{}
	for {
		select {
		case runID := <-joined:
			if !known[runID] {
				known[runID] = true
				leading.Go(func() { l.lead(ctx, runID) })
			}
		case <-ctx.Done():
			return
		}
	}
}

func (l *Leaders) lead(ctx context.Context, runID string) {
	log := l.Logger.With().Str("run_id", runID).Logger()
	store, err := l.Open()
	if err == nil {
		err = (&Lead{store: store, prefix: prefixOf(runID), log: log}).Run(ctx)
	}
	if ctx.Err() == nil {
		log.Error().Err(err).Msg("the leader has ended")
	}
}
