package elastic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/boottime"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// storeWithLeaders is a store and its Leaders, in a synctest bubble.
type storeWithLeaders struct {
	t       *testing.T
	server  *coord.Server
	leaders atomic.Int64 // that have a session now
	started atomic.Int64 // in all
}

// countedSession is a leader's session.
type countedSession struct {
	coord.Store
	leaders *atomic.Int64
}

func (c countedSession) Close(ctx context.Context) error {
	c.leaders.Add(-1)
	return c.Store.Close(ctx)
}

// newStoreWithLeaders starts a store that leads at most maxRuns runs; 0 means no limit.
func newStoreWithLeaders(t *testing.T, maxRuns int) *storeWithLeaders {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	joined, ended := make(chan string), make(chan struct{})
	s := &storeWithLeaders{t: t}
	leaders := &Leaders{MaxRuns: maxRuns, Logger: zerolog.Nop()}
	s.server = coord.NewServer(coord.ServerOptions{Admit: leaders.Admit, OnJoin: func(runID string) {
		select {
		case joined <- runID:
		case <-ctx.Done():
		}
	}})
	open := func() (coord.Store, error) {
		store, err := s.server.Local()
		s.leaders.Add(1)
		s.started.Add(1)
		return countedSession{store, &s.leaders}, err
	}
	go func() {
		defer close(ended)
		leaders.Open, leaders.Joined = open, s.server.HasSession
		leaders.Run(ctx, joined)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if err := s.server.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// dialOptions connects to the store by a pipe.
func (s *storeWithLeaders) dialOptions(runID string) coord.DialOptions {
	conn := func(context.Context) (net.Conn, error) {
		client, server := net.Pipe()
		s.server.ServeConn(server)
		return client, nil
	}
	return coord.DialOptions{Addr: "pipe", RunID: runID, TTL: time.Hour, Conn: conn}
}

// join opens an agent's session.
func (s *storeWithLeaders) join(runID string) *driver {
	s.t.Helper()
	client, err := coord.Dial(s.t.Context(), s.dialOptions(runID))
	if err != nil {
		s.t.Errorf("%s: %v", runID, err)
		return nil
	}
	return &driver{store: client, prefix: rounds.PrefixOf(runID), timeout: time.Second, clock: boottime.Now}
}

// report writes a report and waits for the leader's answer.
func (s *storeWithLeaders) report(d *driver, r rounds.Report) {
	s.t.Helper()
	if r.Job = job(1, 2); r.Phase == "" {
		r.Phase = rounds.Ready
	}
	r.Job.LastCall, r.Node = 0, rounds.Node{Identity: "a", Nproc: 1}
	if err := d.putReport(s.t.Context(), r); err != nil {
		s.t.Errorf("%s: %v", d.prefix, err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	err := d.store.Watch(ctx, d.prefix+rounds.PrefixAnswer, func(b coord.Batch) error {
		if len(b.Events) > 0 {
			return errListed
		}
		return nil
	})
	if !errors.Is(err, errListed) {
		s.t.Errorf("%s: no answer: %v", d.prefix, err)
	}
}

func (s *storeWithLeaders) leave(d *driver) {
	if err := d.store.Close(s.t.Context()); err != nil {
		s.t.Error(err)
	}
}

// TestLeadersEndWithTheirRuns checks that nothing is left of runs that have ended, however they ended.
func TestLeadersEndWithTheirRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoreWithLeaders(t, 0)
		synctest.Wait()
		before := runtime.NumGoroutine()
		for batch := range 3 {
			var agents sync.WaitGroup
			for i := range 60 {
				agents.Go(func() {
					a := s.join(fmt.Sprintf("run-%d-%d", batch, i))
					switch i % 3 {
					case 0: // the run has a result, for a minute
						s.report(a, rounds.Report{Close: true})
					case 1: // the run has a round, and times out for lack of agents
						s.report(a, rounds.Report{})
					}
					s.leave(a)
				})
			}
			agents.Wait()
			if led := s.leaders.Load(); led != 60 {
				t.Errorf("%d runs are led, want 60", led)
			}
			<-time.After(job(1, 2).JoinTimeout + job(1, 2).ResultTTL + 5*time.Minute)
			synctest.Wait()
			if led, keys := s.leaders.Load(), s.server.Stats().Keys; led != 0 || keys != 0 {
				t.Errorf("%d runs are led and %d keys exist without any agent", led, keys)
			}
			if now := runtime.NumGoroutine(); now >= before+60 { // a leak has one for each run; a few may be of other tests
				t.Errorf("%d goroutines, and %d before the first run", now, before)
			}
		}
	})
}

// TestJoinedRunIsLed checks that a run is led again when an agent joins, even if its leader is about to end, or if the
// agent joins long before it reports.
func TestJoinedRunIsLed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoreWithLeaders(t, 0)
		var agents sync.WaitGroup
		const runs = 60
		for i := range runs {
			agents.Go(func() {
				id := fmt.Sprintf("run-%d", i)
				s.leave(s.join(id))
				switch i % 3 {
				case 0: // its leader is about to end, or has just ended
					<-time.After(rounds.UnusedTime)
				case 1:
					<-time.After(2 * rounds.UnusedTime)
				}
				a := s.join(id)
				if i%3 == 2 {
					<-time.After(10 * rounds.UnusedTime)
				}
				s.report(a, rounds.Report{})
				s.leave(a)
			})
		}
		agents.Wait()
		if started := s.started.Load(); started <= runs {
			t.Errorf("%d leaders have started for %d runs: no run is led again", started, runs)
		}
	})
}

// TestRunsAreBounded checks that Leaders refuses runs beyond MaxRuns, but not further agents of the runs that it leads,
// until one of these has ended.
func TestRunsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoreWithLeaders(t, 2)
		a, b := s.join("a"), s.join("b")
		also := s.join("a")
		if err := s.refusal("c"); !strings.Contains(err.Error(), "the store leads 2 runs, as many as its memory allows") {
			t.Errorf("a third run: %v", err)
		}
		s.leave(b)
		synctest.Wait()
		if err := s.refusal("c"); err == nil {
			t.Error("a third run is led while the second run still has a leader")
		}
		again := s.join("b")
		s.leave(again)
		<-time.After(2 * rounds.UnusedTime)
		c := s.join("c")
		s.report(c, rounds.Report{})
		for _, d := range []*driver{a, also, c} {
			s.leave(d)
		}
	})
}

// refusal returns the error of an agent that the store refuses.
func (s *storeWithLeaders) refusal(runID string) error {
	s.t.Helper()
	client, err := coord.Dial(s.t.Context(), s.dialOptions(runID))
	if err == nil {
		s.t.Errorf("%s is admitted", runID)
		_ = client.Close(s.t.Context())
		return errors.New("none")
	}
	if !errors.Is(err, coord.ErrUnavailable) {
		s.t.Errorf("%s is refused permanently: %v", runID, err)
	}
	return err
}

// TestLeaderWaitsForMemory checks that a leader waits while the store is full, as long as the run has agents.
func TestLeaderWaitsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fullUntil, joined := time.Now().Add(10*time.Second), true
		l := &Leaders{Open: func() (coord.Store, error) {
			if time.Now().Before(fullUntil) {
				return nil, coord.ErrFull
			}
			return nil, nil
		}, Joined: func(string) bool { return joined }}
		began := time.Now()
		if _, err := l.open(t.Context(), "r", l.Logger); err != nil || time.Since(began) < 10*time.Second {
			t.Errorf("a session after %v: %v", time.Since(began), err)
		}
		fullUntil, joined = time.Now().Add(10*time.Second), false
		if _, err := l.open(t.Context(), "r", l.Logger); !errors.Is(err, errDeserted) {
			t.Errorf("a deserted run: %v", err)
		}
	})
}
