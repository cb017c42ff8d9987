package elastic

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// A store that leads as many runs as it may keeps out further ones, not the agents of those that it leads, until one of them is forgotten.
func TestRunsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBoundedStore(t, 2)
		a, b := s.join("a"), s.join("b")
		also := s.join("a")
		if err := s.refusal("c"); !strings.Contains(err.Error(), "the store leads 2 runs, as many as its memory allows") {
			t.Errorf("a third run: %v", err)
		}
		s.leave(b)
		synctest.Wait()
		if err := s.refusal("c"); err == nil {
			t.Error("a third run is led while the second one's leader is there")
		}
		again := s.join("b")
		s.leave(again)
		<-time.After(2 * unusedTime)
		c := s.join("c")
		s.answered(c, Report{})
		for _, d := range []*driver{a, also, c} {
			s.leave(d)
		}
	})
}

// refusal is the error of an agent that a store does not let in.
func (s *ledStore) refusal(runID string) error {
	s.t.Helper()
	client, err := coord.Dial(s.t.Context(), coord.DialOptions{Addr: "pipe", RunID: runID, Conn: func(context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		s.server.ServeConn(there)
		return here, nil
	}})
	if err == nil {
		s.t.Errorf("%s is let in", runID)
		_ = client.Close(s.t.Context())
		return errors.New("none")
	}
	if !errors.Is(err, coord.ErrUnavailable) {
		s.t.Errorf("%s is refused for good: %v", runID, err)
	}
	return err
}

// A leader for which a full store has no memory waits for it, and no longer than somebody is there for the run.
func TestLeaderWaitsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fullUntil, there := time.Now().Add(10*time.Second), true
		l := &Leaders{Open: func() (coord.Store, error) {
			if time.Now().Before(fullUntil) {
				return nil, coord.ErrFull
			}
			return nil, nil
		}, Joined: func(string) bool { return there }}
		began := time.Now()
		if _, err := l.open(t.Context(), "r", l.Logger); err != nil || time.Since(began) < 10*time.Second {
			t.Errorf("a session after %v: %v", time.Since(began), err)
		}
		fullUntil, there = time.Now().Add(10*time.Second), false
		if _, err := l.open(t.Context(), "r", l.Logger); !errors.Is(err, errDeserted) {
			t.Errorf("a deserted run: %v", err)
		}
	})
}
