package membership

import (
	"context"
	"errors"
	"sync"
)

// unreached is a member that did not say that it has the newest view.
type unsynced struct {
	member Record
	err    error
}

// sync has all other members of a roster come to have it, and returns those of which that is not known, in the order of their ids.
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

// introduce returns when every member knows of this one, which has joined, and this one of them. Members that are gone are
// evicted, and then all must know of that. One that lives and cannot be reached fails the join. One that can be reached
// and still does not come to know is not waited for: its way to the store is bad, and the log will tell it.
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

// judge returns which of those that were missed are gone. Its error is that of the first, by id, that lives and cannot be reached.
func (d *Dynamic) findGone(ctx context.Context, version int64, unsyncedMembers []unsynced) ([]Record, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	conditions, errs := make([]peerState, len(unsyncedMembers)), make([]error, len(unsyncedMembers))
	var running sync.WaitGroup
	for i, m := range unsyncedMembers {
		running.Go(func() { conditions[i], errs[i] = d.classify(ctx, version, m) })
	}
	running.Wait()
	var dead []Record
	for i, m := range unsyncedMembers {
		switch {
		case errs[i] != nil:
			return nil, errs[i]
		case conditions[i] == gone:
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
		if again := d.syncOne(ctx, m.member, version); again != nil {
			d.opts.Logger.Warn().Err(again).Str("worker", m.member.Name).Msg("a member can be reached, but does not see the group's changes")
		}
	case found == unreachable:
		// It may have left or been evicted meanwhile, and then it answers for the last time.
		now, err := d.log.read(ctx)
		if err == nil && now.has(m.member.Incarnation) {
			err = &ConnectionError{Name: m.member.Name, Address: m.member.Address, Err: m.err}
		}
		return found, err
	}
	return found, nil
}
