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
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// driver connects one agent's member to one session of the store. It writes the member's reports, hands it the leader's
// answers, and keeps the session alive as long as its own loop runs.
type driver struct {
	store    coord.Store
	prefix   string
	interval time.Duration // between keep-alives; 0 if the session needs none
	timeout  time.Duration // of one request to the store
	log      zerolog.Logger

	m          *rounds.Member
	clock      func() time.Duration
	origin     time.Duration       // the zero of the member's time, on clock
	watchdogAt rounds.OptionalTime // the deadline that watchdog was called with last

	watchdog func(at time.Duration) // Options.Watchdog
	probe    func(now time.Duration) (next rounds.OptionalTime)
	status   func(context.Context) []byte                                       // Options.Status
	stacks   func(context.Context, rounds.StacksRequest) []byte                 // Options.Stacks; may be nil
	looks    <-chan lookOrder                                                   // orders to look at all workers
	examine  func(context.Context, int, []rounds.NodeStacks) rounds.HangFinding // Options.Examine; may be nil
	// stackRequests are the calls of Handler.AskStacks; nil if nobody can ask.
	stackRequests <-chan func(session context.Context, d *driver)
	// statusInterval is the time between two statuses while somebody observes the run.
	statusInterval time.Duration
	calls          <-chan func(now time.Duration) // of the agent, made by the loop
	execute        func(orders []rounds.Order)    // must not block
	waiting        *waitingNodes                  // nil if nobody can ask
	storeMoved     func(rounds.StoreAddrs)        // called when the store is at other addresses; nil if it stays
	proved         func(sent time.Duration)       // called with the send time of an answered keep-alive; may be nil
}

func (d *driver) now() time.Duration { return d.clock() - d.origin }

// run drives the member until the session is lost (coord.ErrSessionLost, coord.ErrUnavailable), the store has been
// silent for too long (errStoreSilent), or ctx ends.
func (d *driver) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers, reports, renewals := make(chan rounds.Answer), make(chan rounds.Report, 1), make(chan struct{}, 1)
	proofs, findings, watchEnded := make(chan time.Duration), make(chan rounds.HangFinding), make(chan struct{})
	tasks := []func() error{
		func() error {
			defer close(watchEnded)
			return d.watchAnswers(ctx, answers)
		},
		func() error { return d.writeReports(ctx, reports) },
		func() error { return d.keepAliveLoop(ctx, answers, renewals, proofs) },
	}
	if d.waiting != nil {
		tasks = append(tasks, func() error { return d.watchWaiting(ctx) })
	}
	if client, ok := d.store.(*coord.Client); ok && d.storeMoved != nil {
		tasks = append(tasks, func() error { return d.watchStoreAddrs(ctx, client) })
	}
	if d.examine != nil {
		tasks = append(tasks, func() error { return d.examineHangs(ctx, findings) })
	}
	if d.stackRequests != nil {
		tasks = append(tasks, func() error { return d.serveStackRequests(ctx) })
	}
	if d.status != nil {
		tasks = append(tasks, func() error { return d.publishStatus(ctx) })
	}
	ended := make(chan error, len(tasks))
	var running sync.WaitGroup
	for _, task := range tasks {
		running.Go(func() { ended <- task() })
	}
	err := d.loop(ctx, answers, reports, renewals, proofs, findings, ended)
	d.handleLastAnswers(ctx, answers, watchEnded)
	cancel()
	running.Wait()
	return err
}

// handleLastAnswers handles the answers that arrived before the session was lost. An agent that was paused finds both
// at once, and the last answer may be the job's result.
func (d *driver) handleLastAnswers(ctx context.Context, answers <-chan rounds.Answer, watchEnded <-chan struct{}) {
	if d.store.Err() == nil {
		return
	}
	for {
		select {
		case a := <-answers:
			d.m.HandleAnswer(d.now(), a)
			d.execute(d.m.TakeOrders())
		case <-watchEnded:
			return
		case <-ctx.Done():
			return
		}
	}
}

// loop is the only goroutine that uses the member, until it returns.
func (d *driver) loop(
	ctx context.Context, answers <-chan rounds.Answer, reports chan rounds.Report, renewals chan<- struct{},
	proofs <-chan time.Duration, findings <-chan rounds.HangFinding, ended <-chan error,
) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	renewAt := d.m.ProvenAt() + d.interval
	var shown rounds.Answer
	for {
		now := d.now()
		d.m.Tick(now)
		d.setWatchdog()
		d.execute(d.m.TakeOrders())
		if at := d.m.SearchAt(); d.storeMoved != nil && at.Set && now >= at.At {
			return errStoreSilent
		}
		probeAt := d.probe(now)
		if report, changed := d.m.TakeReport(); changed {
			select { // a report that was not written yet is out of date
			case <-reports:
			default:
			}
			reports <- report
		}
		if d.interval > 0 && now >= renewAt {
			select {
			case renewals <- struct{}{}:
			default: // the last keep-alive is still under way
			}
			renewAt = now + d.interval
		}
		d.arm(timer, now, renewAt, probeAt)
		select {
		case call := <-d.calls:
			call(d.now())
		case a := <-answers:
			if !reflect.DeepEqual(a, shown) {
				shown = a
				d.m.HandleAnswer(d.now(), a)
			}
		case f := <-findings:
			d.m.RecordFinding(f)
		case sent := <-proofs:
			d.m.RecordProof(d.now(), sent)
			if d.proved != nil {
				d.proved(sent)
			}
		case <-timer.C:
		case <-d.store.Lost():
			return d.store.Err()
		case err := <-ended:
			return err
		}
	}
}

// setWatchdog passes a changed deadline to the watchdog, before any worker is started. At the deadline the watchdog
// kills the workers that this process has not killed.
func (d *driver) setWatchdog() {
	by := d.m.Deadline()
	if d.watchdog == nil || by == d.watchdogAt {
		return
	}
	d.watchdogAt = by
	if by.Set {
		d.watchdog(d.origin + by.At)
	} else {
		d.watchdog(0)
	}
}

// arm sets the timer to the next thing that is due.
func (d *driver) arm(timer *time.Timer, now, renewAt time.Duration, probeAt rounds.OptionalTime) {
	next := d.m.NextTick()
	if d.storeMoved != nil {
		next.TakeEarlier(d.m.SearchAt())
	}
	next.TakeEarlier(probeAt)
	if d.interval > 0 {
		next.TakeEarlier(rounds.OptionalTime{At: renewAt, Set: true})
	}
	if next.Set {
		timer.Reset(max(0, next.At-now))
	} else {
		timer.Stop()
	}
}

// watchAnswers delivers the leader's answers.
func (d *driver) watchAnswers(ctx context.Context, answers chan<- rounds.Answer) error {
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

// answerKey returns the key of the leader's answers to this agent.
func (d *driver) answerKey() string {
	return d.prefix + rounds.PrefixAnswer + string(d.store.Session())
}

// deliverAnswer passes an answer of the leader to the loop. The loop ignores an answer that equals the last one.
func (d *driver) deliverAnswer(ctx context.Context, value []byte, answers chan<- rounds.Answer) error {
	var a rounds.Answer
	if err := json.Unmarshal(value, &a); err != nil {
		d.log.Warn().Err(err).Msg("cannot decode the leader's answer")
		return nil
	}
	select {
	case answers <- a:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// writeReports writes the latest report until the store has it.
func (d *driver) writeReports(ctx context.Context, reports <-chan rounds.Report) error {
	var latest rounds.Report
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

// putReport writes a report once.
func (d *driver) putReport(ctx context.Context, r rounds.Report) error {
	value, err := json.Marshal(r.AsOf(d.now())) // it may have waited for the store
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	op := coord.Op{Key: d.prefix + rounds.PrefixAgent + string(d.store.Session()), Value: value, Owned: true}
	_, err = d.store.Commit(ctx, nil, []coord.Op{op})
	if ctx.Err() != nil {
		err = coord.ErrUnavailable
	}
	return err
}

// renew renews the session once. When it returns nil, the loop has every answer that the leader had written before the
// call. The leader relies on that: an agent that renews its session after a Halt has received the Halt.
func (d *driver) renew(ctx context.Context, answers chan<- rounds.Answer) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	if err := d.store.KeepAlive(ctx); err != nil {
		return err
	}
	store, ok := d.store.(coord.Getter)
	if !ok {
		return nil
	}
	value, err := store.Get(ctx, d.answerKey())
	if err != nil || value == nil {
		return err
	}
	return d.deliverAnswer(ctx, value, answers)
}

// keepAliveLoop renews the session whenever renewals asks for it, and sends the time of each renewal to proofs.
func (d *driver) keepAliveLoop(
	ctx context.Context, answers chan<- rounds.Answer, renewals <-chan struct{}, proofs chan<- time.Duration,
) error {
	for {
		select {
		case <-renewals:
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
			d.log.Debug().Err(err).Msg("a keep-alive was not answered")
		}
	}
}
