package membership

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// Peers is how a member of a dynamic group reaches the others. An error that is ErrGone says that the process is gone for certain: its
// address refuses connections, another worker answers there, or it says so itself. Any other says nothing of the process.
type Peers interface {
	// Sync returns when to has a view of at least version: its [Dynamic.Reach] answers.
	Sync(ctx context.Context, to Record, version int64) error
	// Probe asks over a connection of its own whether to lives.
	Probe(ctx context.Context, to Record) error
}

// Options are those of a Dynamic.
type Options struct {
	// Silence is how long the holder of the membership lock may be silent before the lock is taken from it. Zero means 5 s.
	LockTimeout time.Duration
	// Patience is how long a member that cannot be reached has for an answer by the store before it is evicted. Zero means 5 s.
	ReplyTimeout time.Duration
	// SyncTimeout bounds each call to a peer. Zero means 3 s.
	SyncTimeout time.Duration
	// Logger is told of what is unusual. Its zero value logs nothing.
	Logger zerolog.Logger
}

// Dynamic is one member of a dynamic group: one without a world size, which members join and leave at any time. Any number of goroutines may use
// it. Use NewDynamic, Join, and in the end Leave, or Cease and Close.
type Dynamic struct {
	peers    Peers
	opts     Options
	store    kvstore.Store
	log      changeLog
	lock     lock
	tracker  *tracker
	suspects *suspectQueue

	mu        sync.Mutex
	self      Record
	stop      context.CancelFunc // ends what runs in the background; set when Join begins
	quiesce   context.CancelFunc // ends Join and what Cease ends; set with stop
	leaving   bool               // it is its own doing if the log says that it is no member any more
	closed    bool               // Cease or Close has begun: then nothing is joined or judged any more
	joining   sync.WaitGroup     // Join, until it returns
	active    sync.WaitGroup     // what answers for this member and judges others, in the background
	following sync.WaitGroup     // what follows the log, in the background
}

// NewDynamic returns a member that has not joined. The keys of store are the group's alone; self.Incarnation is random and not 0, and self.ID is not
// looked at.
func NewDynamic(store kvstore.Store, self Record, peers Peers, opts Options) *Dynamic {
	opts.LockTimeout = cmp.Or(opts.LockTimeout, 5*time.Second)
	opts.ReplyTimeout = cmp.Or(opts.ReplyTimeout, 5*time.Second)
	opts.SyncTimeout = cmp.Or(opts.SyncTimeout, 3*time.Second)
	return &Dynamic{
		peers: peers, opts: opts, store: store, self: self,
		log:     changeLog{store},
		lock:    lock{store: store, self: self.Incarnation, timeout: opts.LockTimeout, releaseTimeout: opts.ReplyTimeout, log: opts.Logger},
		tracker: newTracker(), suspects: newSuspectQueue(),
	}
}

// Self returns the member's own record, with its ID once Join has returned.
func (d *Dynamic) Self() Record {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.self
}

// View returns the newest view.
func (d *Dynamic) View() View { return d.tracker.view() }

// Reach returns when the view is at version or later: it answers another's Sync. It may be called before Join has returned.
func (d *Dynamic) WaitVersion(ctx context.Context, version int64) error {
	return d.tracker.waitVersion(ctx, version)
}

// Suspect says that the member with this incarnation may be gone. It is looked after in the background, once at a time: if it is gone,
// or answers neither a call nor by the store, it is evicted.
func (d *Dynamic) Suspect(incarnation uint64) { d.suspects.add(incarnation) }

// Done is closed when this is no member any more: after Leave, Close, a Join that failed, or an eviction.
func (d *Dynamic) Done() <-chan struct{} { return d.tracker.done }

// Err returns ErrEvicted once the others have taken this member out of the group, and otherwise nil.
func (d *Dynamic) Err() error { return d.tracker.endErr() }

// Join makes this a member, and returns when all others know. It may be called once. On failure nothing of it is left in the
// group, unless the store cannot be reached to take it back, for which it may outlive ctx by two seconds and twice the patience; then the others find that
// it is gone, as they do after a death. The first of a group that fails alone takes its terms back. Errors are those
// of [CheckName] and [Agree], NameTakenError, AddressError, those of [device.Validate], ConnectionError, ErrEvicted, and
// the store's.
func (d *Dynamic) Join(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	active, quiesce := context.WithCancel(background)
	d.mu.Lock()
	switch {
	case d.closed:
		d.mu.Unlock()
		quiesce()
		stop()
		return ErrShutdown
	case d.stop != nil:
		d.mu.Unlock()
		quiesce()
		stop()
		return errJoined
	}
	d.stop, d.quiesce = stop, quiesce
	d.joining.Add(1)
	d.mu.Unlock()
	defer d.joining.Done()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	detach := context.AfterFunc(active, func() { cancel(cmp.Or(d.Err(), ErrShutdown)) })
	defer detach()
	if err := d.join(ctx, background, active); err != nil {
		d.finish(d.Err())
		return fmt.Errorf("join the group as worker %q: %w", d.self.Name, err)
	}
	return nil
}

// join also begins what runs in the background: what follows the log until background ends, the rest until active does.
func (d *Dynamic) join(ctx, background, active context.Context) error {
	if err := CheckName(d.self.Name); err != nil {
		return err
	}
	err := Agree(ctx, d.store, d.self)
	if err == nil {
		err = d.lock.with(ctx, func(ctx context.Context) error { return d.commitJoin(ctx, background, active) })
	}
	if err != nil {
		d.withdrawTerms(ctx)
	}
	return err
}

// enter commits the join, and tells the others. The caller holds the lock.
func (d *Dynamic) commitJoin(ctx, background, active context.Context) error {
	current, err := d.log.read(ctx)
	if err != nil {
		return err
	}
	tried := int64(0) // the entry that our join is, perhaps
	var replaced Record
	current, err = d.log.commit(ctx, current, func(r snapshot) (*change, error) {
		c, err := d.decideJoin(ctx, r)
		switch {
		case c == nil:
		case c.Kind == joined:
			tried = r.Version + 1
		default:
			replaced, _ = r.find(c.Incarnation)
		}
		return c, err
	})
	if replaced.Incarnation != 0 && !current.has(replaced.Incarnation) {
		d.cleanUpEvicted(ctx, replaced)
	}
	if err == nil {
		d.startBackground(background, active, current)
		if err = d.confirmJoin(ctx, current); err == nil {
			return nil
		}
		tried = current.Version
		d.setLeaving() // What the log says now is our own doing.
	}
	if tried > 0 {
		d.retract(ctx, current, tried)
	}
	return err
}

// admit decides what is to be done for this member to join a group that is at r: nothing once it is in, else evict one that is gone and has its name,
// else join.
func (d *Dynamic) decideJoin(ctx context.Context, r snapshot) (*change, error) {
	if r.has(d.self.Incarnation) {
		return nil, nil //nolint:nilnil // Nothing to do is no error.
	}
	if other, taken := r.named(d.self.Name); taken {
		found, err := d.examine(ctx, other)
		switch {
		case err != nil:
			return nil, err
		case found != gone:
			return nil, &NameTakenError{Name: other.Name, ID: other.ID, Host: other.Host, Address: other.Address}
		}
		return d.eviction(other), nil
	}
	if err := checkMembers(r.with(&d.self).Members, false); err != nil {
		return nil, err
	}
	return &change{Kind: joined, Member: &d.self, By: d.self.Incarnation}, nil
}

// begin starts what a member does in the background.
func (d *Dynamic) startBackground(background, active context.Context, current snapshot) {
	own, _ := current.find(d.self.Incarnation)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.self = own
	d.tracker.publish(current)
	d.following.Go(func() { d.follow(background) })
	if d.closed { // Cease may wait for the rest already.
		return
	}
	d.active.Go(func() { d.answerQueries(active) })
	d.active.Go(func() { d.suspects.resolve(active, d.resolve) })
}

// disagree takes the terms of the group back, after a Join that failed, if they are this member's and it has come alone and left nothing.
func (d *Dynamic) withdrawTerms(ctx context.Context) {
	cleanup, cancel := cleanupContext(ctx)
	defer cancel()
	if !termsUnshared(cleanup, d.store, d.self) {
		return
	}
	if current, err := d.log.read(cleanup); err == nil && !current.has(d.self.Incarnation) {
		withdrawTerms(cleanup, d.store, d.self)
	}
}

// retract takes a join back whose entry is, or may yet come to be, the one of version tried: that entry must be there before
// this member's absence means something, because a request of ours may still be on its way to the store.
func (d *Dynamic) retract(ctx context.Context, from snapshot, tried int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.opts.ReplyTimeout)
	defer cancel()
	_, err := d.log.commit(ctx, from, func(r snapshot) (*change, error) {
		if r.Version >= tried && !r.has(d.self.Incarnation) {
			return nil, nil //nolint:nilnil // Nothing to do is no error.
		}
		return d.eviction(d.self), nil
	})
	if err != nil {
		d.opts.Logger.Warn().Err(err).Str("worker", d.self.Name).Msg("a join that failed could not be taken back")
		return
	}
	d.deleteQueryKeys(ctx, d.self.Incarnation)
}

// Leave takes this member out of the group, and returns when all others know that can be reached. After an error it is still a member, as far as is
// known, and may leave again or be closed. It returns nil as well where the member was evicted.
func (d *Dynamic) Leave(ctx context.Context) error {
	if !d.setLeaving() {
		return errNotMember
	}
	err := d.lock.with(ctx, func(ctx context.Context) error {
		current, err := d.log.commit(ctx, d.tracker.current(), func(r snapshot) (*change, error) {
			if !r.has(d.self.Incarnation) {
				return nil, nil //nolint:nilnil // Nothing to do is no error.
			}
			return &change{Kind: left, Incarnation: d.self.Incarnation, By: d.self.Incarnation}, nil
		})
		if err != nil {
			return err
		}
		d.syncAll(ctx, current) // Whom it does not reach learns it from the log.
		return nil
	})
	if err != nil {
		return fmt.Errorf("leave the group as worker %q: %w", d.self.Name, err)
	}
	d.finish(nil)
	d.deleteQueryKeys(ctx, d.self.Incarnation) // Nothing answers any more, which would leave another key.
	return nil
}

// setLeaving is false where this was never a member.
func (d *Dynamic) setLeaving() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leaving = true
	return d.stop != nil && d.tracker.current().Version > 0
}

// Cease begins Close, and comes before the sockets are closed by which others reach this member: from its return on it judges nobody
// and does not answer by the store for itself any more, so that the others find it gone, and what the log says of it is its own
// doing. A Join under way ends with ErrShutdown. The view still follows the log, and Done stays open until Close or Leave.
func (d *Dynamic) Quiesce() {
	d.mu.Lock()
	d.closed, d.leaving = true, true
	if d.quiesce != nil {
		d.quiesce()
	}
	d.mu.Unlock()
	d.active.Wait()
}

// Close ends what runs in the background, and a Join, and waits for that. It does not leave: the others will find that this process
// is gone. Its error is always nil.
func (d *Dynamic) Close() error {
	d.Quiesce()
	d.mu.Lock()
	stop := d.stop
	d.mu.Unlock()
	if stop != nil {
		stop()
	}
	d.joining.Wait()
	d.finish(nil)
	return nil
}

// finish ends what runs in the background and waits for it.
func (d *Dynamic) finish(err error) {
	d.mu.Lock()
	stop := d.stop
	d.mu.Unlock()
	if stop != nil {
		stop()
	}
	d.active.Wait()
	d.following.Wait()
	d.tracker.end(err)
}
