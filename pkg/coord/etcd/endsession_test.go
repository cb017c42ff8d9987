package etcd

import (
	"errors"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// TestEndSession ends the session of another client, which stands for a process that has died.
func TestEndSession(t *testing.T) {
	t.Parallel()
	options := Options{Endpoints: []string{startEtcd(t).client}, TTL: time.Minute, DialTimeout: 5 * time.Second}
	dead, other := open(t, options), open(t, options)
	insist(t, dead, owned("own", "v"))
	gone := make(chan error, 1)
	vanished := errors.New("the key has vanished")
	go func() {
		gone <- other.Watch(t.Context(), "own", func(b coord.Batch) error {
			if len(b.Events) == 0 || b.Events[0].Deleted {
				return vanished
			}
			return nil
		})
	}()
	if err := EndSession(t.Context(), options, dead.Session()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-gone:
		if !errors.Is(err, vanished) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the keys of the ended session are still there")
	}
	if err := EndSession(t.Context(), options, dead.Session()); err != nil {
		t.Errorf("a session that is over: %v", err)
	}
	if err := EndSession(t.Context(), options, "no number"); err == nil {
		t.Error("ended what is no session")
	}
	options.Endpoints, options.DialTimeout = []string{"http://127.0.0.1:1"}, time.Second
	if err := EndSession(t.Context(), options, dead.Session()); !errors.Is(err, coord.ErrUnavailable) {
		t.Errorf("nobody is there: %v", err)
	}
}
