package membership

import (
	"context"
	"time"
)

// lookAgain is how long the follower waits for one entry before it looks whether the log has gone on without it, which only a process that
// stood still for hundreds of changes can miss.
const rereadInterval = 30 * time.Second

// follow keeps the view at the log's end until ctx ends or this is no member any more.
func (d *Dynamic) follow(ctx context.Context) {
	current := d.tracker.current()
	retry := backoff{limit: d.opts.ReplyTimeout / 4}
	lost := false
	for ctx.Err() == nil {
		next, err := d.waitNext(ctx, current)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !lost:
			d.opts.Logger.Warn().Err(err).Msg("the group's membership stands still: its store cannot be reached")
		case err == nil && lost:
			d.opts.Logger.Info().Msg("the group's store is reached again")
		}
		lost = err != nil
		if lost || next.Version <= current.Version {
			retry.pause(ctx)
			continue
		}
		retry.reset()
		current = next
		d.tracker.publish(current)
		if !current.has(d.self.Incarnation) {
			d.handleRemoval()
			return
		}
	}
}

// wait returns the roster after at. If that takes too long, or this member is known to lag, or the store fails, it is the newest
// one, which may be at.
func (d *Dynamic) waitNext(ctx context.Context, current snapshot) (snapshot, error) {
	waiting, cancel := context.WithTimeout(ctx, rereadInterval)
	defer cancel()
	d.tracker.setInterrupt(cancel)
	next, err := d.log.next(waiting, current)
	if err != nil && ctx.Err() == nil {
		return d.log.read(ctx)
	}
	return next, err
}

// removed ends the membership, because the log says that it has ended.
func (d *Dynamic) handleRemoval() {
	d.mu.Lock()
	closed, leaving, stop := d.closed, d.leaving, d.stop
	d.mu.Unlock()
	switch {
	case closed: // Close or Leave says so.
	case leaving:
		d.tracker.end(nil)
	default:
		d.opts.Logger.Error().Str("worker", d.self.Name).Msg("the other members have evicted this one")
		d.tracker.end(ErrEvicted)
	}
	stop()
}

// backoff is the pause between attempts: longer each time, and at most a second.
type backoff struct {
	limit time.Duration // less than a second, where that is too long
	next  time.Duration
}

// first tells whether nothing has failed since the last reset.
func (b *backoff) first() bool { return b.next == 0 }

func (b *backoff) reset() { b.next = 0 }

// pause waits, until ctx ends at most.
func (b *backoff) pause(ctx context.Context) {
	const least, most = 20 * time.Millisecond, time.Second
	b.next = min(max(2*b.next, least), most, max(b.limit, time.Millisecond))
	timer := time.NewTimer(b.next)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
