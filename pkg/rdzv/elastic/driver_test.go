package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// A report has the age of its failure at the time when the store gets it, however long it has waited.
func TestReportHasTheAgeOfItsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		server := coord.NewServer(coord.ServerOptions{})
		defer server.Close()
		store := localStore(t, server)
		d := &driver{
			store: store, prefix: rounds.PrefixOf("run"), timeout: probeTimeout,
			clock: func() time.Duration { return time.Since(began) },
		}
		m := memberAtWork(d.now())
		m.Fail(d.now(), rdzv.Failure{Age: time.Second})
		<-time.After(4 * time.Second)
		if err := d.putReport(t.Context(), m.CurrentReport()); err != nil {
			t.Fatal(err)
		}
		var got rounds.Report
		events, err := listKeys(t.Context(), store, rounds.PrefixOf("run")+rounds.PrefixAgent)
		if err = errors.Join(err, json.Unmarshal(events[0].Value, &got)); err != nil ||
			got.Failure.Age != 5*time.Second {
			t.Errorf("the failure is %v old, %v", got.Failure.Age, err)
		}
		if m.CurrentReport().Failure.Age != time.Second {
			t.Error("writing a report changed it")
		}
	})
}

// laggingStore is a store whose watches deliver nothing for now.
type laggingStore struct {
	coord.Store
	value []byte
	err   error
}

func (s *laggingStore) Session() coord.SessionID        { return "me" }
func (s *laggingStore) KeepAlive(context.Context) error { return nil }
func (s *laggingStore) Get(_ context.Context, key string) ([]byte, error) {
	if key != "run/answer/me" {
		return nil, errors.New(key)
	}
	return s.value, s.err
}

// A renewed session proves that the agent has received the earlier answers, even if its watch lags behind.
func TestRenewDeliversTheAnswer(t *testing.T) {
	halt, err := json.Marshal(rounds.Answer{Kind: rounds.Halt, Fence: rounds.Fence{Epoch: 1, Round: 3}})
	if err != nil {
		t.Fatal(err)
	}
	unavailable := errors.New("not available")
	for _, tt := range []struct {
		name      string
		store     laggingStore
		delivered bool
		err       error
	}{
		{name: "an answer", store: laggingStore{value: halt}, delivered: true},
		{name: "none yet"},
		{name: "the store is unavailable", store: laggingStore{err: unavailable}, err: unavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &driver{store: &tt.store, prefix: rounds.PrefixOf("run"), timeout: time.Minute}
			answers := make(chan rounds.Answer, 1)
			if err := d.renew(t.Context(), answers); !errors.Is(err, tt.err) {
				t.Errorf("%v, want %v", err, tt.err)
			}
			if got := len(answers) == 1; got != tt.delivered {
				t.Errorf("delivered: %v", got)
			}
		})
	}
}

// endedStore is a store whose session has been lost. Its watches deliver the last answer all the same.
type endedStore struct {
	coord.Store
	last []byte
	lost chan struct{}
}

func (s *endedStore) Session() coord.SessionID { return "me" }
func (s *endedStore) Lost() <-chan struct{}    { return s.lost }
func (s *endedStore) Err() error               { return coord.ErrUnavailable }
func (s *endedStore) Watch(_ context.Context, key string, handle func(coord.Batch) error) error {
	if err := handle(coord.Batch{Resync: true, Events: []coord.Event{{Key: key, Value: s.last}}}); err != nil {
		return err
	}
	return coord.ErrUnavailable
}

// TestLastAnswerBeforeLoss gives a driver the job's result together with the loss of the store.
func TestLastAnswerBeforeLoss(t *testing.T) {
	end, err := json.Marshal(rounds.Answer{
		Kind: rounds.End, Fence: rounds.Fence{Epoch: 1, Round: 3}, Outcome: &rdzv.Outcome{Ending: rdzv.EndSucceeded},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // the loss is noticed before the answer or after it
		s := &endedStore{last: end, lost: make(chan struct{})}
		close(s.lost)
		m, executed := memberAtWork(0), 0
		m.Succeed(0)
		m.TakeReport()
		d := &driver{
			store: s, prefix: rounds.PrefixOf("run"), timeout: time.Minute, m: m,
			clock: func() time.Duration { return 0 }, execute: func([]rounds.Order) { executed++ },
			probe: func(time.Duration) rounds.OptionalTime { return rounds.OptionalTime{} },
		}
		if err := d.run(t.Context()); !errors.Is(err, coord.ErrUnavailable) {
			t.Fatal(err)
		}
		if m.JobEnding() == nil {
			t.Fatal("the driver has dropped the job's result")
		}
	}
}

// memberAtWork returns the member of an agent whose workers run in a round of one node.
func memberAtWork(now time.Duration) *rounds.Member {
	m := rounds.NewMember(rounds.MemberOptions{}, now)
	m.Enter(now, rounds.Node{}, rounds.Offer{}, rdzv.Member{})
	m.HandleAnswer(now, rounds.Answer{Kind: rounds.Run, Fence: rounds.Fence{Epoch: 1}, Place: &rounds.Place{Nodes: 1}})
	m.TakeOrders()
	return m
}
