package membership

import (
	"context"
	"time"
)

// rereadInterval is how long the follower waits for one entry before it reads the log again. It matters only to a
// process that stopped for so long that its next entry was deleted.
const rereadInterval = 30 * time.Second

// follow keeps the view at the end of the log until ctx ends or this worker is no longer a member.
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
			d.opts.Logger.Warn().Err(err).
				Msg("the group's store cannot be reached; the membership cannot change until it can")
		case err == nil && lost:
			d.opts.Logger.Info().Msg("the group's store can be reached again")
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

// waitNext returns the snapshot after current. If the wait takes too long, this member is known to lag, or the store
// fails, waitNext returns the newest snapshot, which may be current.
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

// handleRemoval ends the membership after the log has removed this member.
func (d *Dynamic) handleRemoval() {
	d.mu.Lock()
	closed, leaving, stop := d.closed, d.leaving, d.stop
	d.mu.Unlock()
	switch {
	case closed: // Close or Leave ends the membership.
	case leaving:
		d.tracker.end(nil)
	default:
		d.opts.Logger.Error().Str("worker", d.self.Name).Msg("the other members have evicted this worker")
		d.tracker.end(ErrEvicted)
	}
	stop()
}

// backoff is the pause between attempts. It doubles each time, up to a second.
type backoff struct {
	limit time.Duration // an upper bound below a second, for short timeouts
	next  time.Duration
}

// first reports whether there was no pause since the last reset.
func (b *backoff) first() bool { return b.next == 0 }

func (b *backoff) reset() { b.next = 0 }

// pause waits for the next pause, or until ctx ends.
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
