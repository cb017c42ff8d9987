package membership

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// peerState is the result of an examination of another member.
type peerState int

const (
	reachable   peerState = iota
	unreachable           // alive, because it replied through the store, but this member cannot reach it
	gone
)

// examine finds out whether a member is gone. It is gone if its address proves so, or if it replies neither to a call
// nor through the store. After an error its state is unknown.
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

// probe calls a member at its address. A process that is exiting still accepts connections but does not reply. So probe
// retries a few times while connections fail at once; it does not retry after a call that got no reply.
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

// evict removes members that are gone from the group and returns the snapshot after the removal. It needs no lock. A
// worker that is not a member evicts nobody.
func (d *Dynamic) evict(ctx context.Context, from snapshot, members ...Record) (snapshot, error) {
	current, err := d.log.commit(ctx, from, func(s snapshot) (*change, error) {
		if !s.has(d.self.Incarnation) {
			return nil, ErrEvicted
		}
		for _, m := range members {
			if s.has(m.Incarnation) {
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

// cleanUpEvicted logs the eviction of a member, by this or another member, and deletes the query keys of m.
func (d *Dynamic) cleanUpEvicted(ctx context.Context, m Record) {
	d.opts.Logger.Warn().Str("worker", m.Name).Int("id", m.ID).Str("address", m.Address).
		Msg("a dead member was evicted from the group")
	d.deleteQueryKeys(ctx, m.Incarnation)
}

// resolve finds out whether a suspect is gone, and evicts it if so.
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
			d.opts.Logger.Warn().Err(err).Str("worker", member.Name).
				Msg("cannot find out whether a member is gone; trying again")
		}
		retry.pause(ctx)
	}
}

// suspectQueue holds suspected members. At any time, a member is in the queue or under examination at most once.
type suspectQueue struct {
	wake chan struct{} // holds a token if queued is not empty

	mu      sync.Mutex
	queued  []uint64
	pending map[uint64]bool // incarnations that are queued or being resolved
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

// resolve calls resolve in a goroutine for each suspect until ctx ends.
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
