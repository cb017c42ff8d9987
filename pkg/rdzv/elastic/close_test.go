package elastic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// localStore returns a session of a store in this process.
func localStore(t *testing.T, server *coord.Server) coord.Store {
	t.Helper()
	s, err := server.Local()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestClose(t *testing.T) {
	hs := startJob(t, job(2, 2), 2, nil)
	store := localStore(t, hs[0].opts.Access.(*C10d).hosted().server)
	o, err := Close(t.Context(), store, "run", "ann@desk")
	if err != nil || o.Ending != rdzv.EndClosed || o.Text != "closed by ann@desk" ||
		o.ClosedBy != "ann@desk" {
		t.Fatalf("outcome %+v, %v", o, err)
	}
	for i, h := range hs {
		if s := awaitStop(t, "stop", h); !s.Final {
			t.Errorf("node %d: %+v: the job does not go on", i, s)
		}
		got := await(t, "end", enter(t, h, nil))
		if end, ok := errors.AsType[*rdzv.EndedError](got.err); !ok || end.Outcome.Text != o.Text {
			t.Errorf("node %d: %v", i, got.err)
		}
	}
	_, err = Close(t.Context(), store, "run", "bob@desk")
	if end, ok := errors.AsType[*rdzv.EndedError](err); !ok || end.Late == nil || end.Outcome.Text != o.Text {
		t.Errorf("again: %v", err)
	}
	if _, err = Close(t.Context(), store, "other", "ann@desk"); !errors.Is(err, ErrNoRun) {
		t.Errorf("no such run: %v", err)
	}
}

// Without a leader the end of a run is requested and not confirmed. A leader that comes later finds the request.
func TestCloseWithoutLeader(t *testing.T) {
	server := coord.NewServer(coord.ServerOptions{})
	defer server.Close()
	store := localStore(t, server)
	value, err := json.Marshal(job(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Commit(t.Context(), nil, []coord.Op{{Key: "run/" + rounds.JobKey(0), Value: value}}); err != nil {
		t.Fatal(err)
	}
	d := newLeaderDriver(store, "run", zerolog.Nop())
	run := must(d.findRun(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Close(ctx, store, "run", "ann"); !errors.Is(err, ErrUnconfirmed) {
		t.Errorf("Close: %v", err)
	}
	stop := newLeaderDriver(localStore(t, server), "run", zerolog.Nop()).start(t.Context())
	defer stop()
	if o, err := d.awaitResult(t.Context(), run); err != nil || o.Text != "closed by ann" {
		t.Errorf("outcome %+v, %v", o, err)
	}
}

// A request for an earlier run with the same id closes nothing.
func TestStaleCloseRequest(t *testing.T) {
	server := coord.NewServer(coord.ServerOptions{})
	defer server.Close()
	d := newLeaderDriver(localStore(t, server), "run", zerolog.Nop())
	rev, err := d.store.Commit(t.Context(), nil, []coord.Op{{Key: "run/" + rounds.JobKey(0), Value: []byte("{}")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		value string
		want  string
	}{
		{"another run", `{"job":99,"by":"ann"}`, ""},
		{"malformed", `{`, ""},
		{"this run", string(must(json.Marshal(rounds.CloseRequest{Job: rev, By: "ann"}))), "ann"},
	} {
		l := rounds.NewLeader(1, rounds.SavedState{Job: &rounds.Job{Min: 1, Max: 1}}, 0)
		batch := coord.Batch{Events: []coord.Event{{Key: "run/" + rounds.KeyClose, Value: []byte(tt.value)}}}
		if err := d.observeClose(t.Context(), l, batch); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		closedBy := ""
		writes, _, _ := l.Decide(0)
		for _, w := range writes {
			if o, ok := w.Value.(rdzv.Outcome); ok {
				closedBy = o.ClosedBy
			}
		}
		if closedBy != tt.want {
			t.Errorf("%s: closed by %q, want %q", tt.name, closedBy, tt.want)
		}
	}
}

// A store that ends with the run waits until the process that has closed the run knows the result.
func TestCloserLearnsResult(t *testing.T) {
	d := &leaderDriver{prefix: "run/"}
	l := rounds.NewLeader(1, rounds.SavedState{Outcome: &rdzv.Outcome{Ending: rdzv.EndClosed}}, 0)
	const key = "run/" + rounds.PrefixClose + "s"
	for _, tt := range []struct {
		batch coord.Batch
		want  bool
	}{
		{coord.Batch{Resync: true}, true},
		{coord.Batch{Events: []coord.Event{{Key: key, Value: []byte("{}")}}}, false},
		{coord.Batch{Events: []coord.Event{{Key: key, Deleted: true}}}, true},
		{coord.Batch{Events: []coord.Event{{Key: key, Value: []byte("{}")}}}, false},
		{coord.Batch{Resync: true}, true},
	} {
		if err := d.observeClose(t.Context(), l, tt.batch); err != nil || l.Acknowledged() != tt.want {
			t.Errorf("%+v: acknowledged %v, %v; want %v", tt.batch, l.Acknowledged(), err, tt.want)
		}
	}
}

// A request to close a run does not close the next one with the same id, which agents have begun because all nodes of
// the first one had left.
func TestCloseRunBegunAgain(t *testing.T) {
	server := coord.NewServer(coord.ServerOptions{})
	defer server.Close()
	stop := newLeaderDriver(localStore(t, server), "run", zerolog.Nop()).start(t.Context())
	defer stop()
	d := newLeaderDriver(localStore(t, server), "run", zerolog.Nop())
	join := func(maxNodes int) coord.Store {
		agent := localStore(t, server)
		report := must(json.Marshal(rounds.Report{Node: rounds.Node{Host: "h", Identity: "h", Nproc: 1}, Job: job(2, maxNodes), Phase: rounds.Ready}))
		op := coord.Op{Key: "run/" + rounds.PrefixAgent + string(agent.Session()), Value: report, Owned: true}
		if _, err := agent.Commit(t.Context(), nil, []coord.Op{op}); err != nil {
			t.Fatal(err)
		}
		return agent
	}
	// awaitRun waits for another run than the last one.
	awaitRun := func(last namedRun) (run namedRun) {
		err := d.store.Watch(t.Context(), "run/"+rounds.PrefixState, func(coord.Batch) error {
			var err error
			if run, err = d.findRun(t.Context()); errors.Is(err, ErrNoRun) || err == nil && run == last {
				return nil
			}
			return cmp.Or(err, errListed)
		})
		if !errors.Is(err, errListed) {
			t.Fatal(err)
		}
		return run
	}
	agent := join(2)
	first := awaitRun(namedRun{})
	if err := agent.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	join(3)
	second := awaitRun(first)
	if err := d.writeCloseRequest(t.Context(), first, "ann"); !errors.Is(err, coord.ErrConflict) {
		t.Errorf("a request for the first run: %v", err)
	}
	if err := d.whyNotClosed(t.Context(), first); !errors.Is(err, ErrRunReplaced) {
		t.Errorf("why the first run was not closed: %v", err)
	}
	if _, err := d.awaitResult(t.Context(), first); !errors.Is(err, ErrRunReplaced) {
		t.Errorf("the result of the first run: %v", err)
	}
	if err := d.writeCloseRequest(t.Context(), second, "bob"); err != nil {
		t.Errorf("a request for the second run: %v", err)
	}
	if o, err := d.awaitResult(t.Context(), second); err != nil || o.Text != "closed by bob" {
		t.Errorf("the result of the second run: %+v, %v", o, err)
	}
}

// must returns v, whose error cannot occur.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
