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
)

// A report has the age of its failure at the time when the store gets it, however long it has waited.
func TestReportHasTheAgeOfItsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		server := coord.NewServer(coord.ServerOptions{})
		defer server.Close()
		store, err := server.Local()
		if err != nil {
			t.Fatal(err)
		}
		d := &driver{
			store: store, prefix: prefixOf("run"), timeout: probeTimeout,
			clock: func() time.Duration { return time.Since(began) },
		}
		m := newMember(memberOptions{}, d.now())
		m.state = busy
		m.fail(d.now(), rdzv.Failure{Age: time.Second})
		<-time.After(4 * time.Second)
		if err := d.putReport(t.Context(), m.report); err != nil {
			t.Fatal(err)
		}
		var got Report
		events, err := listKeys(t.Context(), store, prefixOf("run")+prefixAgent)
		if err = errors.Join(err, json.Unmarshal(events[0].Value, &got)); err != nil ||
			got.Failure.Age != 5*time.Second {
			t.Errorf("the failure is %v old, %v", got.Failure.Age, err)
		}
		if m.report.Failure.Age != time.Second {
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
	halt, err := json.Marshal(Answer{Kind: Halt, Fence: Fence{Epoch: 1, Round: 3}})
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
			d := &driver{store: &tt.store, prefix: prefixOf("run"), timeout: time.Minute}
			answers := make(chan Answer, 1)
			if err := d.renew(t.Context(), answers); !errors.Is(err, tt.err) {
				t.Errorf("%v, want %v", err, tt.err)
			}
			if got := len(answers) == 1; got != tt.delivered {
				t.Errorf("delivered: %v", got)
			}
		})
	}
}
