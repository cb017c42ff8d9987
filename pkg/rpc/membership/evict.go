package membership

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// condition is what one member finds out about another.
type peerState int

const (
	reachable   peerState = iota
	unreachable           // it lives, as the store has shown, but cannot be reached from here
	gone
)

// examine finds out whether a member is gone: its address says so, or it answers neither there nor by the store. An error leaves it open.
func (d *Dynamic) examine(ctx context.Context, member Record) (peerState, error) {
	err := d.probe(ctx, member)
	switch {
	case err == nil:
		return reachable, nil
	case errors.Is(err, ErrGone):
		return gone, nil
	case ctx.Err() != nil:
		return unreachable, context.Cause(ctx)
	}
	answered, err := d.query(ctx, member.Incarnation)
	if answered || err != nil {
		return unreachable, err
	}
	return gone, nil
}

// probe asks a member at its address. A process that is just ending still lets connections in, though it answers none: as long as one is refused
// or broken at once, and not a call left without an answer, it is tried again, a few times.
func (d *Dynamic) probe(ctx context.Context, member Record) error {
	probing, cancel := context.WithTimeout(ctx, d.opts.SyncTimeout)
	defer cancel()
	retry := backoff{limit: d.opts.ReplyTimeout / 4}
	for range 6 {
		err := d.peers.Probe(probing, member)
		if err == nil || errors.Is(err, ErrGone) || probing.Err() != nil {
			return err
		}
		retry.pause(probing)
	}
	return d.peers.Probe(probing, member)
}

func (d *Dynamic) eviction(member Record) *change {
	return &change{Kind: evicted, Incarnation: member.Incarnation, By: d.self.Incarnation}
}

// evict takes members that are gone out of the group, and returns the roster after that. It needs no lock. One that is no
// member itself evicts nobody.
func (d *Dynamic) evict(ctx context.Context, from snapshot, members ...Record) (snapshot, error) {
	current, err := d.log.commit(ctx, from, func(r snapshot) (*change, error) {
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
		return current, err
	}
	for _, m := range members {
		d.cleanUpEvicted(ctx, m)
	}
	return current, nil
}

// buried cleans up after a member that was evicted, by whomever.
func (d *Dynamic) cleanUpEvicted(ctx context.Context, m Record) {
	d.opts.Logger.Warn().Str("worker", m.Name).Int("id", m.ID).Str("address", m.Address).Msg("a member is gone, and in the group no more")
	d.deleteQueryKeys(ctx, m.Incarnation)
}

// settle finds out what is the matter with a suspect, and evicts it if it is gone.
func (d *Dynamic) resolve(ctx context.Context, incarnation uint64) {
	retry := backoff{limit: d.opts.ReplyTimeout / 4}
	for ctx.Err() == nil {
		current := d.tracker.current()
		member, known := current.find(incarnation)
		if !known || incarnation == d.self.Incarnation {
			return
		}
		found, err := d.examine(ctx, member)
		if err == nil && found == gone {
			_, err = d.evict(ctx, current, member)
		}
		if err == nil || errors.Is(err, ErrEvicted) {
			return
		}
		if retry.first() && ctx.Err() == nil {
			d.opts.Logger.Warn().Err(err).Str("worker", member.Name).Msg("whether a member is gone cannot be told")
		}
		retry.pause(ctx)
	}
}

// suspicions are the members that somebody has suspected, each once at a time.
type suspectQueue struct {
	wake chan struct{} // there is something in fresh

	mu      sync.Mutex
	queued  []uint64
	pending map[uint64]bool // those under way or in fresh
}

func newSuspectQueue() *suspectQueue {
	return &suspectQueue{wake: make(chan struct{}, 1), pending: map[uint64]bool{}}
}

func (s *suspectQueue) add(incarnation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending[incarnation] {
		return
	}
	s.pending[incarnation] = true
	s.queued = append(s.queued, incarnation)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *suspectQueue) take() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	queued := s.queued
	s.queued = nil
	return slices.Clip(queued)
}

func (s *suspectQueue) done(incarnation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, incarnation)
}

// settle has each suspicion settled, until ctx ends.
func (s *suspectQueue) resolve(ctx context.Context, resolve func(ctx context.Context, incarnation uint64)) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		for _, incarnation := range s.take() {
			running.Go(func() {
				defer s.done(incarnation)
				resolve(ctx, incarnation)
			})
		}
	}
}
