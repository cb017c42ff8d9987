package elastic

import (
	"context"
	"errors"
	"sync"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// Leaders lead all runs of a store that is in a process of its own, in that process: whichever agent dies, the leader does not. A run is led
// from when an agent joins it until, a minute after its result was forgotten, nobody is there any more, and anew when somebody joins again.
type Leaders struct {
	// Open returns a session of the store, for one leader; it lives as long as the store, or until it is closed.
	Open func() (coord.Store, error)
	// Joined reports whether an agent of the run has a session. Who has one from then on comes by the channel of Run.
	Joined func(runID string) bool
	Logger zerolog.Logger
}

// Run leads each run whose id comes from joined, which may name it more than once, until ctx ends. It returns when no leader is left.
func (l *Leaders) Run(ctx context.Context, joined <-chan string) {
	var running sync.WaitGroup
	defer running.Wait()
	led, deserted := map[string]bool{}, make(chan string)
	begin := func(runID string) {
		led[runID] = true
		running.Go(func() {
			if !l.lead(ctx, runID) {
				return
			}
			select {
			case deserted <- runID:
			case <-ctx.Done():
			}
		})
	}
	for {
		select {
		case runID := <-joined:
			if !led[runID] {
				begin(runID)
			}
		case runID := <-deserted:
			delete(led, runID)
			if l.Joined(runID) { // and was taken for led before, but has not said anything yet
				begin(runID)
			}
		case <-ctx.Done():
			return
		}
	}
}

// lead leads one run until ctx ends or, then it returns true, nobody is there for it.
func (l *Leaders) lead(ctx context.Context, runID string) (deserted bool) {
	log := l.Logger.With().Str("run_id", runID).Logger()
	store, err := l.Open()
	if err != nil {
		log.Error().Err(err).Msg("the run cannot be led")
		return false
	}
	defer func() { _ = store.Close(context.WithoutCancel(ctx)) }()
	lead := newLead(store, runID, log)
	lead.passing = true
	return errors.Is(lead.Run(ctx), errDeserted)
}
