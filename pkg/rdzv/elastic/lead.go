package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Lead is a candidate for the leader of one run: it leads while it can, and waits for its turn while another does.
type Lead struct {
	store  coord.Store
	prefix string
	log    zerolog.Logger
	// told is called with the state after each of its decisions, before they are written; may be nil.
	told func(*leader)
	// hosted says that the store goes with the run.
	hosted bool
	// passing lets Run end with the run: there is somebody who begins anew when it is needed.
	passing bool
	// fresh describes the store, if it began without the sessions of another one; nil: it keeps them.
	fresh *Fresh
}

// newLead is a candidate for the leader of a run.
func newLead(store coord.Store, runID string, log zerolog.Logger) *Lead {
	return &Lead{store: store, prefix: prefixOf(runID), log: log}
}

// begin runs it beside the caller, beyond the end of ctx, until stop is called, which returns when it has ended.
func (c *Lead) begin(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Run(ctx) // it has said why
	}()
	return func() {
		cancel(errFinished)
		<-ended
	}
}

// retryPause is how long a candidate waits before it tries again what the store could not do.
const retryPause = 100 * time.Millisecond

// Run leads the run, term after term, until ctx ends, whose cause it returns, or the store's session is lost, or, if it is passing, the run has come to
// its end (errDeserted).
func (c *Lead) Run(ctx context.Context) error {
	complained := false
	for {
		err := c.term(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, coord.ErrSessionLost), errors.Is(err, errDeserted):
			c.log.Debug().Err(err).Msg("no longer a candidate for the leader")
			return err
		}
		level := zerolog.DebugLevel
		if (errors.Is(err, rdzv.ErrState) || errors.Is(err, coord.ErrFull)) && !complained {
			level, complained = zerolog.ErrorLevel, true
		}
		c.log.WithLevel(level).Err(err).Msg("a leader's term has ended")
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// term waits until nobody leads, becomes the leader, and leads until it cannot any more. Each term has a key, and so an epoch, of its own: what
// the term before had under way when it ended comes to nothing.
func (c *Lead) term(ctx context.Context) error {
	epoch, err := c.campaign(ctx)
	if err != nil {
		return err
	}
	c.log.Debug().Int64("epoch", int64(epoch)).Msg("leading")
	err = c.lead(ctx, epoch)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), retryPause)
	defer cancel()
	return errors.Join(err, c.resign(bounded, epoch))
}

// resign gives a term's key up, if it is still there.
func (c *Lead) resign(ctx context.Context, epoch coord.Revision) error {
	key := c.prefix + keyLeader
	_, err := c.store.Commit(ctx, []coord.Guard{{Key: key, Create: epoch}}, []coord.Op{{Key: key, Delete: true}})
	if errors.Is(err, coord.ErrConflict) {
		return nil
	}
	return err
}

// errVacant ends the watch of the leader's key.
var errVacant = errors.New("nobody leads")

// campaign returns the epoch of the new term.
func (c *Lead) campaign(ctx context.Context) (coord.Revision, error) {
	key := c.prefix + keyLeader
	for {
		epoch, err := c.store.Commit(ctx, []coord.Guard{{Key: key}}, []coord.Op{{Key: key, Value: []byte(c.store.Session()), Owned: true}})
		if !errors.Is(err, coord.ErrConflict) {
			return epoch, err
		}
		var own coord.Revision // of a term of ours that could not resign
		err = c.store.Watch(ctx, key, func(b coord.Batch) error {
			for _, e := range b.Events {
				switch {
				case e.Key != key || e.Deleted:
				case string(e.Value) == string(c.store.Session()):
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
			if err := c.resign(ctx, own); err != nil {
				return 0, err
			}
		}
	}
}

// errDeserted ends the last term of a run that nobody is there for.
var errDeserted = errors.New("the run is deserted")

// lead runs one leader.
func (c *Lead) lead(ctx context.Context, epoch coord.Revision) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	batches := make(chan coord.Batch)
	watched := make(chan error, 1)
	go func() {
		watched <- c.store.Watch(ctx, c.prefix+prefixAgent, func(b coord.Batch) error {
			select {
			case batches <- b:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	stop := func(err error) error {
		cancel()
		if watchErr := <-watched; err == nil {
			err = watchErr
		}
		return err
	}
	f, err := c.find(ctx)
	if err != nil {
		return stop(err)
	}
	var first coord.Batch
	select {
	case first = <-batches:
	case err := <-watched:
		return err
	}
	clock := newClock()
	f.instance = c.fresh.at(clock.now())
	f.rerun.hosted, f.rerun.wall = c.hosted, time.Now().Add(-clock.now())
	for _, e := range first.Events {
		if a, ok := c.arrival(e); ok {
			f.agents = append(f.agents, a)
		}
	}
	l := newLeader(epoch, f, clock.now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		writes, wake, timed := l.decide(clock.now())
		if c.told != nil { // before the agents are, so that a host knows that the job has ended when its own agent does
			c.told(l)
		}
		switch err := c.commit(ctx, epoch, writes); {
		case errors.Is(err, coord.ErrTooLarge) && l.ended == nil:
			c.log.Error().Err(err).Int("nodes", len(l.record.Members)).Msg("the job has too many nodes for its store, and is ended")
			l.end(clock.now(), rdzv.Outcome{Ending: rdzv.EndClosed, Text: "the job has too many nodes for its store: " + err.Error()})
			continue
		case err != nil:
			return stop(err)
		case l.rerun.begun:
			return stop(nil) // the next term begins with nothing of the finished run
		}
		l.wrote(clock.now())
		clock.alarm(timer, wake, timed)
		select {
		case b := <-batches:
			c.observe(l, clock.now(), b)
		case <-timer.C:
		case err := <-watched:
			return err
		}
		if l.expired(clock.now()) {
			return stop(nil) // the next term begins anew
		}
		if c.passing && l.deserted(clock.now()) {
			return stop(errDeserted)
		}
	}
}

// observe shows a batch to the leader.
func (c *Lead) observe(l *leader, now time.Duration, b coord.Batch) {
	there := map[coord.SessionID]bool{}
	for _, e := range b.Events {
		if e.Deleted {
			l.see(now, c.agentOf(e), 0, nil)
		} else if a, ok := c.arrival(e); ok {
			there[a.id] = true
			l.see(now, a.id, a.arrived, &a.report)
		}
	}
	if !b.Resync {
		return
	}
	for _, id := range l.sessions() {
		if !there[id] {
			l.see(now, id, 0, nil)
		}
	}
}

// agentOf is the session of the agent whose report the event is about.
func (c *Lead) agentOf(e coord.Event) coord.SessionID {
	return coord.SessionID(strings.TrimPrefix(e.Key, c.prefix+prefixAgent))
}

// arrival reads an agent's report; false where that cannot be read.
func (c *Lead) arrival(e coord.Event) (arrival, bool) {
	a := arrival{id: c.agentOf(e), arrived: e.Create}
	if err := json.Unmarshal(e.Value, &a.report); err != nil {
		c.log.Warn().Err(err).Str("agent", string(a.id)).Msg("an agent's report cannot be read")
		return a, false
	}
	return a, true
}

// find reads what the leaders before have left.
func (c *Lead) find(ctx context.Context) (f found, err error) {
	state, err := list(ctx, c.store, c.prefix+prefixState)
	if err != nil {
		return f, err
	}
	for _, e := range state {
		key := strings.TrimPrefix(e.Key, c.prefix)
		switch {
		case key == keyJob:
			f.job = new(Job)
			err = json.Unmarshal(e.Value, f.job)
		case key == keyResult:
			f.outcome, f.rerun.since = new(rdzv.Outcome), e.Create
			err = json.Unmarshal(e.Value, f.outcome)
		case key == keyFinished:
			err = json.Unmarshal(e.Value, &f.rerun.run)
		case key == keyPast:
			err = json.Unmarshal(e.Value, &f.rerun.past)
		case strings.HasPrefix(key, prefixRound):
			r := new(Record)
			if err = decodeRecord(e.Value, r); err == nil && (f.record == nil || r.Round > f.record.Round) {
				f.record = r
			}
		}
		if err != nil {
			return f, fmt.Errorf("%w: %s: %w", rdzv.ErrState, e.Key, err)
		}
	}
	if f.record != nil && (f.job == nil || len(f.record.Members) == 0) {
		return f, fmt.Errorf("%w: round %d has no job or no members", rdzv.ErrState, f.record.Round)
	}
	answers, err := list(ctx, c.store, c.prefix+prefixAnswer)
	for _, e := range answers {
		a := answered{id: coord.SessionID(strings.TrimPrefix(e.Key, c.prefix+prefixAnswer))}
		if err := json.Unmarshal(e.Value, &a.answer); err != nil {
			return f, fmt.Errorf("%w: %s: %w", rdzv.ErrState, e.Key, err)
		}
		f.answers = append(f.answers, a)
	}
	return f, err
}

// errListed ends the watch of a list.
var errListed = errors.New("listed")

// list returns what is below prefix now.
func list(ctx context.Context, store coord.Store, prefix string) (events []coord.Event, err error) {
	err = store.Watch(ctx, prefix, func(b coord.Batch) error {
		events = b.Events
		return errListed
	})
	if errors.Is(err, errListed) {
		err = nil
	}
	return events, err
}

// Commits of the leader stay well below coord.MaxOps and coord.MaxCommit.
const (
	packOps   = 100
	packBytes = 512 << 10
)

// commit does the writes in their order, in as few commits as will hold them, each under the leader's key.
func (c *Lead) commit(ctx context.Context, epoch coord.Revision, writes []write) error {
	leads := coord.Guard{Key: c.prefix + keyLeader, Create: epoch}
	guards, size := []coord.Guard{leads}, 0
	var ops []coord.Op
	keys := map[string]bool{}
	flush := func() error {
		if len(ops) == 0 {
			return nil
		}
		_, err := c.store.Commit(ctx, guards, ops)
		guards, size, ops = []coord.Guard{leads}, 0, nil
		clear(keys)
		return err
	}
	for _, w := range writes {
		op := coord.Op{Key: c.prefix + w.key, Delete: w.value == nil, TTL: w.ttl}
		if w.value != nil {
			var err error
			if op.Value, err = encodeValue(w.value); err != nil {
				return fmt.Errorf("write %s: %w", w.key, err)
			}
		}
		if len(ops) == packOps || size+len(op.Value) > packBytes || keys[op.Key] {
			if err := flush(); err != nil {
				return err
			}
		}
		if w.create {
			guards = append(guards, coord.Guard{Key: op.Key})
		}
		keys[op.Key] = true
		size += len(op.Key) + len(op.Value)
		ops = append(ops, op)
	}
	return flush()
}
