package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/boottime"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// leaderDriver is a candidate for the leader of one run. It drives a [rounds.Leader] during each of its terms, and
// waits while another candidate leads.
type leaderDriver struct {
	store  coord.Store
	prefix string
	log    zerolog.Logger
	// onDecision is called after each decision, before its writes; may be nil.
	onDecision func(*rounds.Leader)
	// storeEndsWithRun says that the store ends when the run does.
	storeEndsWithRun bool
	// endWithRun lets Run return when the run is deserted: the caller starts another driver if one is needed.
	endWithRun bool
	// freshStore describes the store if it began without the sessions of an earlier one; nil if it keeps its sessions.
	freshStore *rounds.FreshStore
	// group is this process's part in the store if the agents keep it together; else nil.
	group *storeMember
}

func newLeaderDriver(store coord.Store, runID string, log zerolog.Logger) *leaderDriver {
	return &leaderDriver{store: store, prefix: rounds.PrefixOf(runID), log: log}
}

// start calls Run in a goroutine that outlives ctx. stop ends it and returns when it has ended.
func (d *leaderDriver) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = d.Run(ctx) // which has logged why
	}()
	return func() {
		cancel(errFinished)
		<-ended
	}
}

// retryPause is how long a candidate waits before it tries again what the store could not do.
const retryPause = 100 * time.Millisecond

// errYields ends a term in a store that gives way to another one of the run.
var errYields = errors.New("another store of the run takes this one's place")

// errDeserted ends the last term of a run that has no agents and no result.
var errDeserted = errors.New("the run is deserted")

// Run leads the run, term after term. It returns when ctx ends (its cause), when the store's session is lost, or, with
// endWithRun, when the run is deserted (errDeserted).
func (d *leaderDriver) Run(ctx context.Context) error {
	logged := false
	for {
		err := d.term(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, coord.ErrSessionLost), errors.Is(err, errDeserted):
			d.log.Debug().Err(err).Msg("no longer a candidate for the leader")
			return err
		}
		level := zerolog.DebugLevel
		if (errors.Is(err, rdzv.ErrState) || errors.Is(err, coord.ErrFull)) && !logged {
			level, logged = zerolog.ErrorLevel, true
		}
		d.log.WithLevel(level).Err(err).Msg("a leader's term has ended")
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// term waits until the run has no leader, becomes the leader, and leads for as long as it can. Each term creates the
// leader's key anew and so has its own epoch: commits of an earlier term that are still under way fail.
func (d *leaderDriver) term(ctx context.Context) error {
	epoch, err := d.campaign(ctx)
	if err != nil {
		return err
	}
	d.log.Debug().Int64("epoch", int64(epoch)).Msg("leading")
	err = d.lead(ctx, epoch)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), retryPause)
	defer cancel()
	return errors.Join(err, d.resign(bounded, epoch))
}

// resign deletes a term's key if it still exists.
func (d *leaderDriver) resign(ctx context.Context, epoch coord.Revision) error {
	key := d.prefix + rounds.KeyLeader
	_, err := d.store.Commit(ctx, []coord.Guard{{Key: key, Create: epoch}}, []coord.Op{{Key: key, Delete: true}})
	if errors.Is(err, coord.ErrConflict) {
		return nil
	}
	return err
}

// errVacant ends the watch of the leader's key.
var errVacant = errors.New("the run has no leader")

// campaign becomes the leader and returns the epoch of the new term.
func (d *leaderDriver) campaign(ctx context.Context) (coord.Revision, error) {
	key, session := d.prefix+rounds.KeyLeader, string(d.store.Session())
	for {
		op := coord.Op{Key: key, Value: []byte(session), Owned: true}
		epoch, err := d.store.Commit(ctx, []coord.Guard{{Key: key}}, []coord.Op{op})
		if !errors.Is(err, coord.ErrConflict) {
			return epoch, err
		}
		var own coord.Revision // of an earlier term of this session that could not resign
		err = d.store.Watch(ctx, key, func(b coord.Batch) error {
			for _, e := range b.Events {
				switch {
				case e.Key != key || e.Deleted:
				case string(e.Value) == session:
					own = e.Create
				default:
					return nil
				}
			}
			return errVacant
		})
		if !errors.Is(err, errVacant) {
			return 0, err
		}
		if own != 0 {
			if err := d.resign(ctx, own); err != nil {
				return 0, err
			}
		}
	}
}

// lead drives one leader until its term ends.
func (d *leaderDriver) lead(ctx context.Context, epoch coord.Revision) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	batches, closes := make(chan coord.Batch), make(chan coord.Batch)
	watched := make(chan error, 2)
	go func() { watched <- d.watch(ctx, d.prefix+rounds.PrefixAgent, batches) }()
	go func() { watched <- d.watch(ctx, d.prefix+rounds.KeyClose, closes) }()
	running := cap(watched)
	stop := func(err error) error {
		cancel()
		for ; running > 0; running-- {
			if watchErr := <-watched; err == nil {
				err = watchErr
			}
		}
		return err
	}
	saved, err := d.readState(ctx)
	if err != nil {
		return stop(err)
	}
	var first coord.Batch
	select {
	case first = <-batches:
	case err := <-watched:
		running--
		return stop(err)
	}
	clock := newClock()
	l := d.takeOver(epoch, saved, first, clock)
	var published rounds.StoreAddrs
	voted := d.votersChanged()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		writes, wake, timed := l.Decide(clock.now())
		if d.onDecision != nil { // before the writes, so that a host knows of the job's end when its own agent does
			d.onDecision(l)
		}
		if d.group != nil && !d.group.mayDecide(l.HasRound()) {
			return stop(errYields)
		}
		writes = d.writeStoreAddrs(writes, &published)
		switch err := d.commit(ctx, epoch, writes); {
		case errors.Is(err, coord.ErrTooLarge) && !l.IsOver():
			d.log.Error().Err(err).Int("nodes", l.RoundNodes()).
				Msg("the job has too many nodes for its store, and is ended")
			l.EndTooLarge(clock.now(), err)
			continue
		case err != nil:
			return stop(err)
		case l.RerunBegun():
			return stop(nil) // the next term finds nothing of the finished run
		}
		l.WritesDone(clock.now())
		clock.alarm(timer, wake, timed)
		select {
		case b := <-batches:
			d.observeBatch(l, clock.now(), b)
		case b := <-closes:
			if err := d.observeClose(ctx, l, b); err != nil {
				return stop(err)
			}
		case <-voted:
		case <-timer.C:
		case err := <-watched:
			running--
			return stop(err)
		}
		if l.ResultExpired(clock.now()) {
			return stop(nil) // the next term starts from nothing
		}
		if d.endWithRun && l.Deserted(clock.now()) {
			return stop(errDeserted)
		}
	}
}

// takeOver returns the leader of a term, from what is in the store.
func (d *leaderDriver) takeOver(
	epoch coord.Revision, saved rounds.SavedState, reports coord.Batch, clock *clock,
) *rounds.Leader {
	if d.group != nil {
		saved.StoreInvites = d.group.inviteCount()
	}
	saved.StoreHistory = d.fresh(saved.Record != nil).History(clock.now(), boottime.Now())
	saved.History.StoreEndsWithRun, saved.History.WallOrigin = d.storeEndsWithRun, time.Now().Add(-clock.now())
	for _, e := range reports.Events {
		if a, ok := d.decodeReport(e); ok {
			saved.Agents = append(saved.Agents, a)
		}
	}
	return rounds.NewLeader(epoch, saved, clock.now())
}

// watch sends the batches of a watch to a channel until ctx ends.
func (d *leaderDriver) watch(ctx context.Context, prefix string, batches chan<- coord.Batch) error {
	return d.store.Watch(ctx, prefix, func(b coord.Batch) error {
		select {
		case batches <- b:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// observeBatch passes a batch of the watch to the leader. In a resync, agents that do not appear have lost their
// session.
func (d *leaderDriver) observeBatch(l *rounds.Leader, now time.Duration, b coord.Batch) {
	present := map[coord.SessionID]bool{}
	for _, e := range b.Events {
		if e.Deleted {
			l.Observe(now, d.agentOf(e), 0, nil)
		} else if a, ok := d.decodeReport(e); ok {
			present[a.ID] = true
			l.Observe(now, a.ID, a.Arrived, &a.Report)
		}
	}
	if !b.Resync {
		return
	}
	for _, id := range l.Sessions() {
		if !present[id] {
			l.Observe(now, id, 0, nil)
		}
	}
}

// agentOf returns the session of the agent whose report the event is about.
func (d *leaderDriver) agentOf(e coord.Event) coord.SessionID {
	return coord.SessionID(strings.TrimPrefix(e.Key, d.prefix+rounds.PrefixAgent))
}

// decodeReport decodes an agent's report; false if it is malformed.
func (d *leaderDriver) decodeReport(e coord.Event) (rounds.AgentArrival, bool) {
	a := rounds.AgentArrival{ID: d.agentOf(e), Arrived: e.Create}
	if err := json.Unmarshal(e.Value, &a.Report); err != nil {
		d.log.Warn().Err(err).Str("agent", string(a.ID)).Msg("an agent's report is malformed")
		return a, false
	}
	return a, true
}

// Commits of the leader stay well below coord.MaxOps and coord.MaxCommit.
const (
	packOps   = 100
	packBytes = 512 << 10
)

// commit makes the writes in their order, in as few commits as can hold them, each guarded by the leader's key.
func (d *leaderDriver) commit(ctx context.Context, epoch coord.Revision, writes []rounds.Write) error {
	isLeader := coord.Guard{Key: d.prefix + rounds.KeyLeader, Create: epoch}
	guards, size := []coord.Guard{isLeader}, 0
	var ops []coord.Op
	keys := map[string]bool{} // a commit can hold one write of a key
	flush := func() error {
		if len(ops) == 0 {
			return nil
		}
		_, err := d.store.Commit(ctx, guards, ops)
		guards, size, ops = []coord.Guard{isLeader}, 0, nil
		clear(keys)
		return err
	}
	for _, w := range writes {
		op := coord.Op{Key: d.prefix + w.Key, Delete: w.Value == nil, TTL: w.TTL}
		if w.Value != nil {
			var err error
			if op.Value, err = rounds.EncodeValue(w.Value); err != nil {
				return fmt.Errorf("write %s: %w", w.Key, err)
			}
		}
		if len(ops) == packOps || size+len(op.Value) > packBytes || keys[op.Key] {
			if err := flush(); err != nil {
				return err
			}
		}
		if w.Create {
			guards = append(guards, coord.Guard{Key: op.Key})
		}
		keys[op.Key] = true
		size += len(op.Key) + len(op.Value)
		ops = append(ops, op)
	}
	return flush()
}
