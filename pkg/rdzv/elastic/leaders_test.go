package elastic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// ledStore is, in a bubble, a store in a process of its own, with its leaders.
type ledStore struct {
	t       *testing.T
	server  *coord.Server
	leaders atomic.Int64 // that have a session
	begun   atomic.Int64
}

// counted is a leader's session.
type counted struct {
	coord.Store
	leaders *atomic.Int64
}

func (c counted) Close(ctx context.Context) error {
	c.leaders.Add(-1)
	return c.Store.Close(ctx)
}

func newLedStore(t *testing.T) *ledStore {
	t.Helper()
	return newBoundedStore(t, 0)
}

// newBoundedStore is a store that leads so many runs at most.
func newBoundedStore(t *testing.T, maxRuns int) *ledStore {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	joined, ended := make(chan string), make(chan struct{})
	s := &ledStore{t: t}
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
		s.begun.Add(1)
		return counted{store, &s.leaders}, err
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

// join opens an agent's session.
func (s *ledStore) join(runID string) *driver {
	s.t.Helper()
	client, err := coord.Dial(s.t.Context(), coord.DialOptions{Addr: "pipe", RunID: runID, TTL: time.Hour, Conn: func(context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		s.server.ServeConn(there)
		return here, nil
	}})
	if err != nil {
		s.t.Errorf("%s: %v", runID, err)
		return nil
	}
	return &driver{store: client, prefix: prefixOf(runID), timeout: time.Second}
}

// answered reports, and wants the leader's answer.
func (s *ledStore) answered(d *driver, r Report) {
	s.t.Helper()
	if r.Job = job(1, 2); r.Phase == "" {
		r.Phase = Ready
	}
	r.Job.LastCall, r.Node = 0, Node{Identity: "a", Nproc: 1}
	if err := d.putReport(s.t.Context(), r); err != nil {
		s.t.Errorf("%s: %v", d.prefix, err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	err := d.store.Watch(ctx, d.prefix+prefixAnswer, func(b coord.Batch) error {
		if len(b.Events) > 0 {
			return errListed
		}
		return nil
	})
	if !errors.Is(err, errListed) {
		s.t.Errorf("%s: no answer: %v", d.prefix, err)
	}
}

func (s *ledStore) leave(d *driver) {
	if err := d.store.Close(s.t.Context()); err != nil {
		s.t.Error(err)
	}
}

// Of runs that have come to their end nothing is left, whatever the end was.
func TestLeadersEndWithTheirRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLedStore(t)
		synctest.Wait()
		before := runtime.NumGoroutine()
		for batch := range 3 {
			var agents sync.WaitGroup
			for i := range 60 {
				agents.Go(func() {
					a := s.join(fmt.Sprintf("run-%d-%d", batch, i))
					switch i % 3 {
					case 0: // it has a result, for a minute
						s.answered(a, Report{Close: true})
					case 1: // it has a round, and is given up for lack of agents
						s.answered(a, Report{})
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
				t.Errorf("%d runs are led, and there are %d keys, though nobody is there", led, keys)
			}
			if now := runtime.NumGoroutine(); now >= before+60 { // one for each run; a few may be others'
				t.Errorf("there are %d goroutines, and were %d before the first run", now, before)
			}
		}
	})
}

// A run that is not led any more is led anew with whoever joins, also where that happens as the leader ends, or where the agent joined
// long before it has something to say.
func TestWhoJoinsIsLed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLedStore(t)
		var agents sync.WaitGroup
		const runs = 60
		for i := range runs {
			agents.Go(func() {
				id := fmt.Sprintf("run-%d", i)
				s.leave(s.join(id))
				switch i % 3 {
				case 0: // its leader is about to end, or has just ended
					<-time.After(unusedTime)
				case 1:
					<-time.After(2 * unusedTime)
				}
				a := s.join(id)
				if i%3 == 2 {
					<-time.After(10 * unusedTime)
				}
				s.answered(a, Report{})
				s.leave(a)
			})
		}
		agents.Wait()
		if begun := s.begun.Load(); begun <= runs {
			t.Errorf("%d leaders have begun, for %d runs: none of them anew", begun, runs)
		}
	})
}
