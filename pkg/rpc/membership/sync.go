package membership

import (
	"context"
	"errors"
	"sync"
)

// unsynced is a member that did not confirm that it has the newest view.
type unsynced struct {
	member Record
	err    error
}

// syncAll makes all other members of the snapshot read the log up to its version. It returns the members that did not
// confirm this, in ascending order of their ids.
func (d *Dynamic) syncAll(ctx context.Context, current snapshot) []unsynced {
	others := current.others(d.self.Incarnation)
	errs := make([]error, len(others))
	var running sync.WaitGroup
	for i, member := range others {
		running.Go(func() { errs[i] = d.syncOne(ctx, member, current.Version) })
	}
	running.Wait()
	var unsyncedMembers []unsynced
	for i, err := range errs {
		if err != nil {
			unsyncedMembers = append(unsyncedMembers, unsynced{others[i], err})
		}
	}
	return unsyncedMembers
}

func (d *Dynamic) syncOne(ctx context.Context, member Record, version int64) error {
	ctx, cancel := context.WithTimeout(ctx, d.opts.SyncTimeout)
	defer cancel()
	return d.peers.Sync(ctx, member, version)
}

// confirmJoin returns once every member knows that this worker has joined, and this worker knows every member. It
// evicts members that are gone, and then all members must know of the eviction. A member that is alive but cannot be
// reached fails the join. confirmJoin does not wait for a member that can be reached but does not see the new version:
// its connection to the store is bad, and it reads the log later.
func (d *Dynamic) confirmJoin(ctx context.Context, current snapshot) error {
	for {
		dead, err := d.findGone(ctx, current.Version, d.syncAll(ctx, current))
		if err != nil {
			return err
		}
		if len(dead) == 0 {
			return d.tracker.waitVersion(ctx, current.Version)
		}
		if current, err = d.evict(ctx, current, dead...); err != nil {
			return err
		}
	}
}

// findGone returns the unsynced members that are gone. It returns an error for the member with the lowest id that is
// alive but cannot be reached.
func (d *Dynamic) findGone(ctx context.Context, version int64, unsyncedMembers []unsynced) ([]Record, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	states, errs := make([]peerState, len(unsyncedMembers)), make([]error, len(unsyncedMembers))
	var running sync.WaitGroup
	for i, m := range unsyncedMembers {
		running.Go(func() { states[i], errs[i] = d.classify(ctx, version, m) })
	}
	running.Wait()
	var dead []Record
	for i, m := range unsyncedMembers {
		switch {
		case errs[i] != nil:
			return nil, errs[i]
		case states[i] == gone:
			dead = append(dead, m.member)
		}
	}
	return dead, nil
}

func (d *Dynamic) classify(ctx context.Context, version int64, m unsynced) (peerState, error) {
	if errors.Is(m.err, ErrGone) {
		return gone, nil
	}
	found, err := d.examine(ctx, m.member)
	switch {
	case err != nil:
		return found, err
	case found == reachable:
		if err := d.syncOne(ctx, m.member, version); err != nil {
			d.opts.Logger.Warn().Err(err).Str("worker", m.member.Name).
				Msg("a member can be reached, but does not see the group's changes")
		}
	case found == unreachable:
		// The member may have left or been evicted meanwhile, so that this was its last reply.
		now, err := d.log.read(ctx)
		if err == nil && now.has(m.member.Incarnation) {
			err = &ConnectionError{Name: m.member.Name, Address: m.member.Address, Err: m.err}
		}
		return found, err
	}
	return found, nil
}
