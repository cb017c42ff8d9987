package elastic

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// A failure is as old as it is when the store gets the report, however long that waited.
func TestReportTellsTheAgeOfItsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := coord.NewServer(coord.ServerOptions{})
		defer server.Close()
		store, err := server.Local()
		if err != nil {
			t.Fatal(err)
		}
		d := &driver{store: store, prefix: prefixOf("run"), patience: probeTimeout, origin: time.Now()}
		m := newMember(memberOptions{}, d.now())
		m.state = busy
		m.fail(d.now(), rdzv.Failure{Age: time.Second})
		<-time.After(4 * time.Second)
		if err := d.put(t.Context(), m.report); err != nil {
			t.Fatal(err)
		}
		var got Report
		events, err := list(t.Context(), store, prefixOf("run")+prefixAgent)
		if err = errors.Join(err, json.Unmarshal(events[0].Value, &got)); err != nil || got.Failure.Age != 5*time.Second {
			t.Errorf("the failure is %v old, %v", got.Failure.Age, err)
		}
		if m.report.Failure.Age != time.Second {
			t.Error("writing a report changes it")
		}
	})
}
