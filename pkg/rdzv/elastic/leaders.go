package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// Leaders leads all runs of a store that is a process of its own, in that process, so that no agent's death ends a
// leader. It leads a run from when an agent joins it until a minute after its result was forgotten and its last agent
// has left, and again when another agent joins.
type Leaders struct {
	// Open returns a session of the store for one leader. The session lives until the store ends or it is closed.
	Open func() (coord.Store, error)
	// Joined reports whether an agent of the run has a session. Runs of later agents come through the channel of Run.
	Joined func(runID string) bool
	// MaxRuns is how many runs are led at a time; 0 means no limit. [Leaders.Admit] refuses further runs.
	MaxRuns int
	// Fresh describes the store if it began without the sessions of an earlier one; nil if it keeps its sessions.
	Fresh  *rounds.FreshStore
	Logger zerolog.Logger

	admitted runSet
}

// Run leads each run whose id comes from joined, which may repeat ids, until ctx ends. It returns when no leader is
// left.
func (l *Leaders) Run(ctx context.Context, joined <-chan string) {
	var running sync.WaitGroup
	defer running.Wait()
	led, deserted := map[string]bool{}, make(chan string)
	begin := func(runID string) {
		led[runID] = true
		l.admitted.add(runID, 0)
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
			l.admitted.remove(runID)
			if l.Joined(runID) { // an agent joined while the run was still led, but has not reported yet
				begin(runID)
			}
		case <-ctx.Done():
			return
		}
	}
}

// lead leads one run until ctx ends or the run is deserted.
func (l *Leaders) lead(ctx context.Context, runID string) (deserted bool) {
	log := l.Logger.With().Str("run_id", runID).Logger()
	store, err := l.open(ctx, runID, log)
	if err != nil {
		return errors.Is(err, errDeserted)
	}
	defer func() { _ = store.Close(context.WithoutCancel(ctx)) }()
	d := newLeaderDriver(store, runID, log)
	d.endWithRun, d.freshStore = true, l.Fresh
	return errors.Is(d.Run(ctx), errDeserted)
}

// fullPause is how long a leader waits before it asks a full store for memory again.
const fullPause = time.Second

// open opens a session for the leader of a run. While the store is full, open keeps trying as long as the run has
// agents.
func (l *Leaders) open(ctx context.Context, runID string, log zerolog.Logger) (coord.Store, error) {
	for logged := false; ; logged = true {
		store, err := l.Open()
		if err == nil {
			return store, nil
		}
		if !logged {
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

// Admit returns why a client of a run cannot have a session, or "" if it can: the run is led already, or may be led
// from now on. The caller must send the id of an admitted run to the channel of Run. Admit is for
// [coord.ServerOptions].
func (l *Leaders) Admit(runID string) (refusal string) {
	if n, ok := l.admitted.add(runID, l.MaxRuns); !ok {
		return fmt.Sprintf("the store leads %d runs, as many as its memory allows: end some, or give it more memory", n)
	}
	return ""
}

// Runs returns how many runs are led or admitted.
func (l *Leaders) Runs() int {
	l.admitted.mu.Lock()
	defer l.admitted.mu.Unlock()
	return len(l.admitted.ids)
}

// runSet is the runs that Leaders leads or has admitted. The zero value is empty.
type runSet struct {
	mu  sync.Mutex
	ids map[string]bool
}

// add adds a run unless the set would exceed limit, and returns the size of the set; a limit of 0 is none.
func (s *runSet) add(runID string, limit int) (size int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit > 0 && len(s.ids) >= limit && !s.ids[runID] {
		return len(s.ids), false
	}
	if s.ids == nil {
		s.ids = map[string]bool{}
	}
	s.ids[runID] = true
	return len(s.ids), true
}

func (s *runSet) remove(runID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ids, runID)
}
