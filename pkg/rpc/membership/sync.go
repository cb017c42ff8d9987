package membership

import (
	"context"
	"errors"
	"sync"
)

// unreached is a member that did not say that it has the newest view.
type unreached struct {
	member Record
	err    error
}

// sync has all other members of a roster come to have it, and returns those of which that is not known, in the order of their ids.
func (d *Dynamic) sync(ctx context.Context, at roster) []unreached {
	others := at.others(d.self.Incarnation)
	errs := make([]error, len(others))
	var running sync.WaitGroup
	for i, member := range others {
		running.Go(func() { errs[i] = d.syncOne(ctx, member, at.Version) })
	}
	running.Wait()
	var missed []unreached
	for i, err := range errs {
		if err != nil {
			missed = append(missed, unreached{others[i], err})
		}
	}
	return missed
}

func (d *Dynamic) syncOne(ctx context.Context, member Record, version int64) error {
	ctx, cancel := context.WithTimeout(ctx, d.opts.SyncTimeout)
	defer cancel()
	return d.peers.Sync(ctx, member, version)
}

// introduce returns when every member knows of this one, which has joined, and this one of them. Members that are gone are
// evicted, and then all must know of that. One that lives and cannot be reached fails the join. One that can be reached
// and still does not come to know is not waited for: its way to the store is bad, and the log will tell it.
func (d *Dynamic) introduce(ctx context.Context, at roster) error {
	for {
		dead, err := d.judge(ctx, at.Version, d.sync(ctx, at))
		if err != nil {
			return err
		}
		if len(dead) == 0 {
			return d.board.reach(ctx, at.Version)
		}
		if at, err = d.evict(ctx, at, dead...); err != nil {
			return err
		}
	}
}

// judge returns which of those that were missed are gone. Its error is that of the first, by id, that lives and cannot be reached.
func (d *Dynamic) judge(ctx context.Context, version int64, missed []unreached) ([]Record, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	conditions, errs := make([]condition, len(missed)), make([]error, len(missed))
	var running sync.WaitGroup
	for i, m := range missed {
		running.Go(func() { conditions[i], errs[i] = d.judgeOne(ctx, version, m) })
	}
	running.Wait()
	var dead []Record
	for i, m := range missed {
		switch {
		case errs[i] != nil:
			return nil, errs[i]
		case conditions[i] == gone:
			dead = append(dead, m.member)
		}
	}
	return dead, nil
}

func (d *Dynamic) judgeOne(ctx context.Context, version int64, m unreached) (condition, error) {
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
	case found == apart:
		// It may have left or been evicted meanwhile, and then it answers for the last time.
		now, err := d.log.read(ctx)
		if err == nil && now.has(m.member.Incarnation) {
			err = &ConnectionError{Name: m.member.Name, Address: m.member.Address, Err: m.err}
		}
		return found, err
	}
	return found, nil
}
