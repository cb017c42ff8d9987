package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

func TestLeaderCloses(t *testing.T) {
	playAll(t, []leaderTest{
		{"a first report may ask for it", defaultJob(), []step{
			{0, "a ready +close", "job, result: closed, forget job, end: a"},
		}},
		{"success in the same batch wins", defaultJob(), after(twoNodeRound,
			step{5, "a done", ""},
			step{6, "b busy +close; b done", "result: succeeded, forget job, end: a b"},
		)},
		{"an agent that another one has replaced closes nothing", defaultJob(), after(twoNodeRound,
			step{5, "c ready +id=a", "replace: a, halt0: b"},
			step{6, "a busy +close", ""},
		)},
		{"an agent that does not fit closes nothing", defaultJob(), after(twoNodeRound,
			step{5, "c ready +max=9 +close", "refuse: c"},
		)},
		{"a halted round", defaultJob(), after(twoNodeRound,
			step{5, "a failing 1", "halt0: a b"},
			step{6, "b busy +close", "result: closed, forget job, end: a b"},
		)},
	})
}

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
	hs := startJob(t, job(2, 2), 2)
	store := localStore(t, hs[0].opts.Access.(*C10d).Server())
	o, err := Close(t.Context(), store, "run", "ann@desk")
	if err != nil || o.Ending != rdzv.EndClosed || o.Text != "closed by ann@desk" {
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
	if _, err := store.Commit(t.Context(), nil, []coord.Op{{Key: "run/" + keyJob, Value: value}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Close(ctx, store, "run", "ann"); !errors.Is(err, ErrUnconfirmed) {
		t.Errorf("Close: %v", err)
	}
	stop := newLeaderDriver(localStore(t, server), "run", zerolog.Nop()).start(t.Context())
	defer stop()
	if o, err := awaitResult(t.Context(), store, "run/"+keyResult); err != nil || o.Text != "closed by ann" {
		t.Errorf("outcome %+v, %v", o, err)
	}
}

// A request for an earlier run with the same id closes nothing.
func TestStaleCloseRequest(t *testing.T) {
	server := coord.NewServer(coord.ServerOptions{})
	defer server.Close()
	d := newLeaderDriver(localStore(t, server), "run", zerolog.Nop())
	rev, err := d.store.Commit(t.Context(), nil, []coord.Op{{Key: "run/" + keyJob, Value: []byte("{}")}})
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
		{"this run", string(must(json.Marshal(closeRequest{rev, "ann"}))), "ann"},
	} {
		l := newLeader(1, savedState{}, 0)
		batch := coord.Batch{Events: []coord.Event{{Key: "run/" + keyClose, Value: []byte(tt.value)}}}
		if err := d.observeClose(t.Context(), l, batch); err != nil || l.closedBy != tt.want {
			t.Errorf("%s: closed by %q, %v; want %q", tt.name, l.closedBy, err, tt.want)
		}
	}
}

// must returns v, whose error cannot occur.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
