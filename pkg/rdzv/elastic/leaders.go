package elastic

import (
	"context"
	"errors"
	"sync"
	"time"

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
	// MaxRuns is how many runs are led at a time; 0 is no limit. [Leaders.Admit] keeps further ones out.
	MaxRuns int
	// Fresh describes the store, if it began without the sessions of another one; nil: it keeps them.
	Fresh  *Fresh
	Logger zerolog.Logger

	admission admission
}

// Run leads each run whose id comes from joined, which may name it more than once, until ctx ends. It returns when no leader is left.
func (l *Leaders) Run(ctx context.Context, joined <-chan string) {
	var running sync.WaitGroup
	defer running.Wait()
	led, deserted := map[string]bool{}, make(chan string)
	begin := func(runID string) {
		led[runID] = true
		l.admission.begin(runID)
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
			l.admission.end(runID)
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
	store, err := l.open(ctx, runID, log)
	if err != nil {
		return errors.Is(err, errDeserted)
	}
	defer func() { _ = store.Close(context.WithoutCancel(ctx)) }()
	lead := newLead(store, runID, log)
	lead.passing, lead.fresh = true, l.Fresh
	return errors.Is(lead.Run(ctx), errDeserted)
}

// open opens a session for the leader of a run. While the store has no memory for it, it waits, as long as somebody is there for the run.
func (l *Leaders) open(ctx context.Context, runID string, log zerolog.Logger) (coord.Store, error) {
	for said := false; ; said = true {
		store, err := l.Open()
		if err == nil {
			return store, nil
		}
		if !said {
			log.Error().Err(err).Msg("the run cannot be led")
		}
		if !errors.Is(err, coord.ErrFull) {
			return nil, err
		}
		select {
		case <-time.After(fullPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if !l.Joined(runID) {
			return nil, errDeserted
		}
	}
}

// fullPause is how long a leader waits before it asks a full store for memory again.
const fullPause = time.Second
