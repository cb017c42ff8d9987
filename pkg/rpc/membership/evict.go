package membership

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// condition is what one member finds out about another.
type condition int

const (
	reachable condition = iota
	apart               // it lives, as the store has shown, but cannot be reached from here
	gone
)

// examine finds out whether a member is gone: its address says so, or it answers neither there nor by the store. An error leaves it open.
func (d *Dynamic) examine(ctx context.Context, member Record) (condition, error) {
	err := d.probe(ctx, member)
	switch {
	case err == nil:
		return reachable, nil
	case errors.Is(err, ErrGone):
		return gone, nil
	case ctx.Err() != nil:
		return apart, context.Cause(ctx)
	}
	answered, err := d.ask(ctx, member.Incarnation)
	if answered || err != nil {
		return apart, err
	}
	return gone, nil
}

// probe asks a member at its address. A process that is just ending still lets connections in, though it answers none: as long as one is refused
// or broken at once, and not a call left without an answer, it is tried again, a few times.
func (d *Dynamic) probe(ctx context.Context, member Record) error {
	probing, cancel := context.WithTimeout(ctx, d.opts.SyncTimeout)
	defer cancel()
	again := backoff{most: d.opts.Patience / 4}
	for range 6 {
		err := d.peers.Probe(probing, member)
		if err == nil || errors.Is(err, ErrGone) || probing.Err() != nil {
			return err
		}
		again.pause(probing)
	}
	return d.peers.Probe(probing, member)
}

func (d *Dynamic) eviction(member Record) *change {
	return &change{Kind: evicted, Incarnation: member.Incarnation, By: d.self.Incarnation}
}

// evict takes members that are gone out of the group, and returns the roster after that. It needs no lock. One that is no
// member itself evicts nobody.
func (d *Dynamic) evict(ctx context.Context, from roster, members ...Record) (roster, error) {
	at, err := d.log.commit(ctx, from, func(r roster) (*change, error) {
		if !r.has(d.self.Incarnation) {
			return nil, ErrEvicted
		}
		for _, m := range members {
			if r.has(m.Incarnation) {
				return d.eviction(m), nil
			}
		}
		return nil, nil //nolint:nilnil // Nothing to do is no error.
	})
	if err != nil {
		return at, err
	}
	for _, m := range members {
		d.buried(ctx, m)
	}
	return at, nil
}

// buried cleans up after a member that was evicted, by whomever.
func (d *Dynamic) buried(ctx context.Context, m Record) {
	d.opts.Logger.Warn().Str("worker", m.Name).Int("id", m.ID).Str("address", m.Address).Msg("a member is gone, and in the group no more")
	d.forget(ctx, m.Incarnation)
}

// settle finds out what is the matter with a suspect, and evicts it if it is gone.
func (d *Dynamic) settle(ctx context.Context, incarnation uint64) {
	again := backoff{most: d.opts.Patience / 4}
	for ctx.Err() == nil {
		at := d.board.roster()
		member, known := at.find(incarnation)
		if !known || incarnation == d.self.Incarnation {
			return
		}
		found, err := d.examine(ctx, member)
		if err == nil && found == gone {
			_, err = d.evict(ctx, at, member)
		}
		if err == nil || errors.Is(err, ErrEvicted) {
			return
		}
		if again.first() && ctx.Err() == nil {
			d.opts.Logger.Warn().Err(err).Str("worker", member.Name).Msg("whether a member is gone cannot be told")
		}
		again.pause(ctx)
	}
}

// suspicions are the members that somebody has suspected, each once at a time.
type suspicions struct {
	kick chan struct{} // there is something in fresh

	mu      sync.Mutex
	fresh   []uint64
	settled map[uint64]bool // those under way or in fresh
}

func newSuspicions() *suspicions {
	return &suspicions{kick: make(chan struct{}, 1), settled: map[uint64]bool{}}
}

func (s *suspicions) add(incarnation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settled[incarnation] {
		return
	}
	s.settled[incarnation] = true
	s.fresh = append(s.fresh, incarnation)
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

func (s *suspicions) take() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := s.fresh
	s.fresh = nil
	return slices.Clip(fresh)
}

func (s *suspicions) done(incarnation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.settled, incarnation)
}

// settle has each suspicion settled, until ctx ends.
func (s *suspicions) settle(ctx context.Context, settle func(ctx context.Context, incarnation uint64)) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		}
		for _, incarnation := range s.take() {
			running.Go(func() {
				defer s.done(incarnation)
				settle(ctx, incarnation)
			})
		}
	}
}
