package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// driver connects one agent's member to one session of the store: it writes its reports, shows it the leader's answers, and
// keeps the session alive for as long as its own loop goes round.
type driver struct {
	store    coord.Store
	prefix   string
	interval time.Duration // between keep-alives; 0: the session needs none
	patience time.Duration // for one answer of the store
	log      zerolog.Logger

	m      *member
	origin time.Time
	dead   moment // as deadMan was told last

	deadMan func(in time.Duration)       // Options.DeadMan
	status  func(context.Context) []byte // Options.Status
	// statusInterval is how often an agent that is looked at writes what it is doing.
	statusInterval time.Duration
	calls          <-chan func(now time.Duration) // of the agent, to be made between the events
	obey           func(orders []order)           // takes the orders; must not block
}

func (d *driver) now() time.Duration { return time.Since(d.origin) }

// run returns when the session is lost (coord.ErrSessionLost, coord.ErrUnavailable), the member is through with it (nil), or ctx ends.
func (d *driver) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers, reports, beats := make(chan Answer), make(chan Report, 1), make(chan struct{}, 1)
	proofs := make(chan time.Duration)
	tasks := []func() error{
		func() error { return d.watch(ctx, answers) },
		func() error { return d.write(ctx, reports) },
		func() error { return d.beat(ctx, beats, proofs) },
	}
	if d.status != nil {
		tasks = append(tasks, func() error { return d.show(ctx) })
	}
	ended := make(chan error, len(tasks))
	var running sync.WaitGroup
	for _, task := range tasks {
		running.Go(func() { ended <- task() })
	}
	err := d.loop(ctx, answers, reports, beats, proofs, ended)
	cancel()
	running.Wait()
	return err
}

func (d *driver) loop(ctx context.Context, answers <-chan Answer, reports chan Report, beats chan<- struct{}, proofs <-chan time.Duration, ended <-chan error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	beatAt := d.m.proof + d.interval
	for {
		now := d.now()
		d.m.tick(now)
		d.setDeadMan(now)
		d.obey(d.m.take())
		if d.m.dirty {
			d.m.dirty = false
			select { // what was not written yet is out of date
			case <-reports:
			default:
			}
			reports <- d.m.report
		}
		if d.interval > 0 && now >= beatAt {
			select {
			case beats <- struct{}{}:
			default: // the one before is still under way
			}
			beatAt = now + d.interval
		}
		d.arm(timer, now, beatAt)
		select {
		case call := <-d.calls:
			call(d.now())
		case a := <-answers:
			d.m.answered(d.now(), a)
		case sent := <-proofs:
			d.m.proved(sent)
		case <-timer.C:
		case <-d.store.Lost():
			return d.store.Err()
		case err := <-ended:
			return err
		}
	}
}

// setDeadMan tells who watches over this process, before any worker is started, by when to kill the workers in its place.
func (d *driver) setDeadMan(now time.Duration) {
	by := d.m.deadline()
	if d.deadMan == nil || by == d.dead {
		return
	}
	d.dead = by
	if by.set {
		d.deadMan(max(time.Millisecond, by.at-now))
	} else {
		d.deadMan(0)
	}
}

// arm sets the timer for what is due next.
func (d *driver) arm(timer *time.Timer, now, beatAt time.Duration) {
	next := d.m.wake()
	if d.interval > 0 && (!next.set || beatAt < next.at) {
		next = moment{beatAt, true}
	}
	if next.set {
		timer.Reset(max(0, next.at-now))
	} else {
		timer.Stop()
	}
}

// watch shows the leader's answers.
func (d *driver) watch(ctx context.Context, answers chan<- Answer) error {
	key := d.prefix + prefixAnswer + string(d.store.Session())
	return d.store.Watch(ctx, key, func(b coord.Batch) error {
		for _, e := range b.Events {
			if e.Key != key || e.Deleted {
				continue
			}
			var a Answer
			if err := json.Unmarshal(e.Value, &a); err != nil {
				d.log.Warn().Err(err).Msg("the leader's answer cannot be read")
				continue
			}
			select {
			case answers <- a:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
}

// write writes each report, the latest only, until the store has it.
func (d *driver) write(ctx context.Context, reports <-chan Report) error {
	var latest Report
	var again <-chan time.Time
	for {
		select {
		case latest = <-reports:
		case <-again:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		again = nil
		switch err := d.put(ctx, latest); {
		case errors.Is(err, coord.ErrUnavailable):
			again = time.After(retryPause)
		case err != nil:
			return err
		}
	}
}

// put writes a report.
func (d *driver) put(ctx context.Context, r Report) error {
	if r.Failure != nil { // it may have waited for the store
		f := *r.Failure
		f.Age, r.Failure = d.now()-r.failedAt, &f
	}
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	_, err = d.store.Commit(ctx, nil, []coord.Op{{Key: d.prefix + prefixAgent + string(d.store.Session()), Value: value, Owned: true}})
	if ctx.Err() != nil {
		err = coord.ErrUnavailable
	}
	return err
}

// beat proves, whenever it is asked to, that the agent lives.
func (d *driver) beat(ctx context.Context, beats <-chan struct{}, proofs chan<- time.Duration) error {
	for {
		select {
		case <-beats:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		sent := d.now()
		bounded, cancel := context.WithTimeout(ctx, d.patience)
		err := d.store.KeepAlive(bounded)
		cancel()
		switch {
		case err == nil:
			select {
			case proofs <- sent:
			case <-ctx.Done():
			}
		case errors.Is(err, coord.ErrSessionLost):
			return err
		default:
			d.log.Debug().Err(err).Msg("a keep-alive had no answer")
		}
	}
}
