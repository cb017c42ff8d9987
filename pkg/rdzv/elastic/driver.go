package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
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
	timeout  time.Duration // for one answer of the store
	log      zerolog.Logger

	m          *member
	clock      func() time.Duration
	origin     time.Duration // of the member's time, by clock
	watchdogAt optionalTime  // as deadMan was told last

	watchdog func(at time.Duration) // Options.DeadMan
	probe    func(now time.Duration) (next optionalTime)
	status   func(context.Context) []byte // Options.Status
	// statusInterval is how often an agent that is looked at writes what it is doing.
	statusInterval time.Duration
	calls          <-chan func(now time.Duration) // of the agent, to be made between the events
	execute        func(orders []order)           // takes the orders; must not block
}

func (d *driver) now() time.Duration { return d.clock() - d.origin }

// run returns when the session is lost (coord.ErrSessionLost, coord.ErrUnavailable), the member is through with it (nil), or ctx ends.
func (d *driver) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers, reports, beats := make(chan Answer), make(chan Report, 1), make(chan struct{}, 1)
	proofs := make(chan time.Duration)
	tasks := []func() error{
		func() error { return d.watchAnswers(ctx, answers) },
		func() error { return d.writeReports(ctx, reports) },
		func() error { return d.keepAliveLoop(ctx, answers, beats, proofs) },
	}
	if d.status != nil {
		tasks = append(tasks, func() error { return d.publishStatus(ctx) })
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
	beatAt := d.m.lastProof + d.interval
	var shown Answer
	for {
		now := d.now()
		d.m.tick(now)
		d.setWatchdog()
		d.execute(d.m.takeOrders())
		probeAt := d.probe(now)
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
		d.arm(timer, now, beatAt, probeAt)
		select {
		case call := <-d.calls:
			call(d.now())
		case a := <-answers:
			if !reflect.DeepEqual(a, shown) {
				shown = a
				d.m.handleAnswer(d.now(), a)
			}
		case sent := <-proofs:
			d.m.recordProof(sent)
		case <-timer.C:
		case <-d.store.Lost():
			return d.store.Err()
		case err := <-ended:
			return err
		}
	}
}

// setDeadMan tells who watches over this process, before any worker is started, by when to kill the workers in its place.
func (d *driver) setWatchdog() {
	by := d.m.deadline()
	if d.watchdog == nil || by == d.watchdogAt {
		return
	}
	d.watchdogAt = by
	if by.set {
		d.watchdog(d.origin + by.at)
	} else {
		d.watchdog(0)
	}
}

// arm sets the timer for what is due next.
func (d *driver) arm(timer *time.Timer, now, beatAt time.Duration, probeAt optionalTime) {
	next := d.m.nextTick()
	if probeAt.set && (!next.set || probeAt.at < next.at) {
		next = probeAt
	}
	if d.interval > 0 && (!next.set || beatAt < next.at) {
		next = optionalTime{beatAt, true}
	}
	if next.set {
		timer.Reset(max(0, next.at-now))
	} else {
		timer.Stop()
	}
}

// watch shows the leader's answers.
func (d *driver) watchAnswers(ctx context.Context, answers chan<- Answer) error {
	key := d.answerKey()
	return d.store.Watch(ctx, key, func(b coord.Batch) error {
		for _, e := range b.Events {
			if e.Key != key || e.Deleted {
				continue
			}
			if err := d.deliverAnswer(ctx, e.Value, answers); err != nil {
				return err
			}
		}
		return nil
	})
}

// answerKey is where the leader answers this agent.
func (d *driver) answerKey() string { return d.prefix + prefixAnswer + string(d.store.Session()) }

// showAnswer shows the driving loop an answer of the leader; one that was shown before changes nothing.
func (d *driver) deliverAnswer(ctx context.Context, value []byte, answers chan<- Answer) error {
	var a Answer
	if err := json.Unmarshal(value, &a); err != nil {
		d.log.Warn().Err(err).Msg("the leader's answer cannot be read")
		return nil
	}
	select {
	case answers <- a:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// write writes each report, the latest only, until the store has it.
func (d *driver) writeReports(ctx context.Context, reports <-chan Report) error {
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
		switch err := d.putReport(ctx, latest); {
		case errors.Is(err, coord.ErrUnavailable):
			again = time.After(retryPause)
		case err != nil:
			return err
		}
	}
}

// put writes a report.
func (d *driver) putReport(ctx context.Context, r Report) error {
	if r.Failure != nil { // it may have waited for the store
		f := *r.Failure
		f.Age, r.Failure = d.now()-r.failedAt, &f
	}
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	_, err = d.store.Commit(ctx, nil, []coord.Op{{Key: d.prefix + prefixAgent + string(d.store.Session()), Value: value, Owned: true}})
	if ctx.Err() != nil {
		err = coord.ErrUnavailable
	}
	return err
}

// lagging is a store whose watches may tell a change long after a keep-alive that came later was answered.
type laggingWatcher interface {
	// Get returns the value of a key, nil if there is none, as of some moment between call and return.
	Get(ctx context.Context, key string) ([]byte, error)
}

// keepAlive proves that the agent lives. When it returns the agent has seen all answers of the leader that were there when it was called:
// the leader counts on an agent that was told to stop and proves its life afterwards to have heard it.
func (d *driver) renew(ctx context.Context, answers chan<- Answer) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	if err := d.store.KeepAlive(ctx); err != nil {
		return err
	}
	store, ok := d.store.(laggingWatcher)
	if !ok {
		return nil
	}
	value, err := store.Get(ctx, d.answerKey())
	if err != nil || value == nil {
		return err
	}
	return d.deliverAnswer(ctx, value, answers)
}

// beat proves, whenever it is asked to, that the agent lives.
func (d *driver) keepAliveLoop(ctx context.Context, answers chan<- Answer, beats <-chan struct{}, proofs chan<- time.Duration) error {
	for {
		select {
		case <-beats:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		sent := d.now()
		err := d.renew(ctx, answers)
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
