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

// Peers lets a member of a dynamic group reach the other members. An error that wraps ErrGone proves that the process
// has ended: its address refuses connections, another worker answers there, or the process itself says that it is
// shutting down. Any other error proves nothing.
type Peers interface {
	// Sync returns once to has a view of at least version, that is, once [Dynamic.WaitVersion] has returned there.
	Sync(ctx context.Context, to Record, version int64) error
	// Probe asks to, over a separate connection, whether it is alive.
	Probe(ctx context.Context, to Record) error
}

// Options configure a Dynamic.
type Options struct {
	// LockTimeout is the time without a renewal after which other members take over the membership lock. Zero means 5s.
	LockTimeout time.Duration
	// ReplyTimeout is how long a member that cannot be reached has to reply through the store before it is evicted.
	// Zero means 5s.
	ReplyTimeout time.Duration
	// SyncTimeout limits each call to a peer. Zero means 3s.
	SyncTimeout time.Duration
	// Logger receives warnings. Its zero value logs nothing.
	Logger zerolog.Logger
}

// Dynamic is one member of a dynamic group: a group without a world size, whose members join and leave at any time.
// Create it with NewDynamic, call Join, and finally Leave, or Quiesce and Close. Any number of goroutines may use it.
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
	stop      context.CancelFunc // stops all background work; set when Join starts
	quiesce   context.CancelFunc // stops Join and the goroutines of active; set with stop
	leaving   bool               // the member itself causes its removal from the log, so the removal is not an eviction
	closed    bool               // Quiesce or Close has started: the member no longer joins, and evicts nobody
	joining   sync.WaitGroup     // Join, until it returns
	active    sync.WaitGroup     // background: answers queries and resolves suspects
	following sync.WaitGroup     // background: follows the log
}

// NewDynamic returns a member that has not joined. store must hold no other keys than the group's. self.Incarnation
// must be random and not 0; self.ID is ignored.
func NewDynamic(store kvstore.Store, self Record, peers Peers, opts Options) *Dynamic {
	opts.LockTimeout = cmp.Or(opts.LockTimeout, 5*time.Second)
	opts.ReplyTimeout = cmp.Or(opts.ReplyTimeout, 5*time.Second)
	opts.SyncTimeout = cmp.Or(opts.SyncTimeout, 3*time.Second)
	return &Dynamic{
		peers: peers, opts: opts, store: store, self: self,
		log: changeLog{store},
		lock: lock{
			store: store, self: self.Incarnation, log: opts.Logger,
			timeout: opts.LockTimeout, releaseTimeout: opts.ReplyTimeout,
		},
		tracker: newTracker(), suspects: newSuspectQueue(),
	}
}

// Self returns the member's own record. Its ID is valid once Join has returned.
func (d *Dynamic) Self() Record {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.self
}

// View returns the newest view.
func (d *Dynamic) View() View { return d.tracker.view() }

// WaitVersion returns once the view has version or a later one. It serves the Sync of another member's [Peers]. It may
// be called before Join has returned.
func (d *Dynamic) WaitVersion(ctx context.Context, version int64) error {
	return d.tracker.waitVersion(ctx, version)
}

// Suspect reports that the member with this incarnation may be gone. A background goroutine examines the member, at
// most one at a time for each member. It evicts the member if the process is gone, or if it replies neither to a call
// nor through the store.
func (d *Dynamic) Suspect(incarnation uint64) { d.suspects.add(incarnation) }

// Done is closed when this worker is no longer a member: after Leave, Close, a failed Join or an eviction.
func (d *Dynamic) Done() <-chan struct{} { return d.tracker.done }

// Err returns ErrEvicted once the other members have evicted this member, and otherwise nil.
func (d *Dynamic) Err() error { return d.tracker.endErr() }

// Join makes this worker a member and returns once all members know. It may be called once.
//
// After a failure nothing of the join is left in the group, unless the store cannot be reached to undo it. Join may
// outlive ctx for the undo by two seconds plus twice the ReplyTimeout. If the undo fails too, the other members find
// this member gone, as after a death. If the first worker of a group fails alone, it withdraws its terms.
//
// Join returns the errors of [CheckName], [Agree], [device.Validate] and the store, and NameTakenError, AddressError,
// ConnectionError and ErrEvicted.
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

// join also starts the background work. The follower of the log runs until background ends, the rest until active ends.
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

// commitJoin commits the join to the log and notifies the other members. The caller holds the lock.
func (d *Dynamic) commitJoin(ctx, background, active context.Context) error {
	current, err := d.log.read(ctx)
	if err != nil {
		return err
	}
	tried := int64(0) // the version of the entry that may be this member's join
	var replaced Record
	current, err = d.log.commit(ctx, current, func(s snapshot) (*change, error) {
		c, err := d.decideJoin(ctx, s)
		switch {
		case c == nil:
		case c.Kind == joined:
			tried = s.Version + 1
		default:
			replaced, _ = s.find(c.Incarnation)
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
		d.setLeaving() // From now on this member itself causes its removal.
	}
	if tried > 0 {
		d.retract(ctx, current, tried)
	}
	return err
}

// decideJoin returns the next change that this member needs to join a group in state s: none if it is a member; the
// eviction of a dead member with the same name; otherwise its join.
func (d *Dynamic) decideJoin(ctx context.Context, s snapshot) (*change, error) {
	if s.has(d.self.Incarnation) {
		return nil, nil //nolint:nilnil // Nothing to do is no error.
	}
	if other, taken := s.named(d.self.Name); taken {
		found, err := d.examine(ctx, other)
		switch {
		case err != nil:
			return nil, err
		case found != gone:
			return nil, &NameTakenError{Name: other.Name, ID: other.ID, Host: other.Host, Address: other.Address}
		}
		return d.eviction(other), nil
	}
	if err := checkMembers(s.with(&d.self).Members, false); err != nil {
		return nil, err
	}
	return &change{Kind: joined, Member: &d.self, By: d.self.Incarnation}, nil
}

// startBackground starts the member's background goroutines.
func (d *Dynamic) startBackground(background, active context.Context, current snapshot) {
	own, _ := current.find(d.self.Incarnation)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.self = own
	d.tracker.publish(current)
	d.following.Go(func() { d.follow(background) })
	if d.closed { // Quiesce may already wait for active.
		return
	}
	d.active.Go(func() { d.answerQueries(active) })
	d.active.Go(func() { d.suspects.resolve(active, d.resolve) })
}

// withdrawTerms withdraws the group's terms after a failed Join if this member set them, no other member agreed, and
// the member is not in the log.
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

// retract undoes a join whose log entry has, or may still get, the version tried. A request of this member may still be
// on its way to the store. So the member's absence from the log counts only once that entry exists.
func (d *Dynamic) retract(ctx context.Context, from snapshot, tried int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.opts.ReplyTimeout)
	defer cancel()
	_, err := d.log.commit(ctx, from, func(s snapshot) (*change, error) {
		if s.Version >= tried && !s.has(d.self.Incarnation) {
			return nil, nil //nolint:nilnil // Nothing to do is no error.
		}
		return d.eviction(d.self), nil
	})
	if err != nil {
		d.opts.Logger.Warn().Err(err).Str("worker", d.self.Name).Msg("a failed join could not be undone")
		return
	}
	d.deleteQueryKeys(ctx, d.self.Incarnation)
}

// Leave takes this member out of the group and returns once all reachable members know. After an error the worker may
// still be a member; it may call Leave again or Close. Leave returns nil if the member was evicted.
func (d *Dynamic) Leave(ctx context.Context) error {
	if !d.setLeaving() {
		return errNotMember
	}
	err := d.lock.with(ctx, func(ctx context.Context) error {
		current, err := d.log.commit(ctx, d.tracker.current(), func(s snapshot) (*change, error) {
			if !s.has(d.self.Incarnation) {
				return nil, nil //nolint:nilnil // Nothing to do is no error.
			}
			return &change{Kind: left, Incarnation: d.self.Incarnation, By: d.self.Incarnation}, nil
		})
		if err != nil {
			return err
		}
		d.syncAll(ctx, current) // Members that cannot be reached read it in the log.
		return nil
	})
	if err != nil {
		return fmt.Errorf("leave the group as worker %q: %w", d.self.Name, err)
	}
	d.finish(nil)
	// Only now, because answerQueries, which sets one of the keys, has stopped.
	d.deleteQueryKeys(ctx, d.self.Incarnation)
	return nil
}

// setLeaving returns false if this worker was never a member.
func (d *Dynamic) setLeaving() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leaving = true
	return d.stop != nil && d.tracker.current().Version > 0
}

// Quiesce prepares for Close. Call it before closing the sockets on which this member is reachable. Once it has
// returned, the member evicts nobody and does not reply through the store, so other members find it gone. It then does
// not report its own eviction. A running Join ends with ErrShutdown. The view still follows the log, and Done stays
// open until Close or Leave.
func (d *Dynamic) Quiesce() {
	d.mu.Lock()
	d.closed, d.leaving = true, true
	if d.quiesce != nil {
		d.quiesce()
	}
	d.mu.Unlock()
	d.active.Wait()
}

// Close stops Join and the background work, and waits for both. It does not leave: the other members find that this
// process is gone. Its error is always nil.
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

// finish stops the background work, waits for it, and ends the view with err.
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
