package elastic

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// brief returns what the tests check, in one line.
func (s Snapshot) brief() string {
	text := "no round"
	if s.Record != nil {
		text = fmt.Sprintf("round %d", s.Record.Round)
	}
	for _, a := range s.Agents {
		text += fmt.Sprintf(" %s=%d:%s", a.Host, a.Rank, a.Status)
		if a.Lost {
			text += "lost"
		}
		if a.Note != "" {
			text += "(" + a.Note + ")"
		}
	}
	if s.Outcome != nil {
		text += " " + string(s.Outcome.Ending)
	}
	return text
}

// An agent publishes its status while somebody observes the run, and otherwise writes nothing.
func TestStatusIsPublishedWhileObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := coord.NewServer(coord.ServerOptions{})
		defer server.Close()
		const interval = 2 * time.Second
		var asked atomic.Int64
		d := &driver{
			store: localStore(t, server), prefix: rounds.PrefixOf("run"), timeout: time.Second, log: zerolog.Nop(),
			statusInterval: interval,
			status:         func(context.Context) []byte { return fmt.Appendf(nil, "%d", asked.Add(1)) },
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.publishStatus(ctx) }()
		observe := func() (stop func()) {
			store := localStore(t, server)
			ctx, cancel := context.WithCancel(ctx)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = Observe(ctx, store, "run", func(Snapshot) error { return nil })
			}()
			return func() {
				cancel()
				<-done
				_ = store.Close(context.WithoutCancel(ctx))
			}
		}
		at := func() string {
			events, err := listKeys(ctx, d.store, rounds.PrefixOf("run")+rounds.PrefixStatus)
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			for _, e := range events {
				text += string(e.Value)
			}
			return text
		}
		check := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := at(); got != want {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		<-time.After(time.Minute)
		check("nobody observes", "")
		first := observe()
		check("one observer", "1")
		<-time.After(2*interval + time.Millisecond)
		check("after two intervals", "3")
		second := observe()
		check("two observers", "3")
		first()
		<-time.After(interval)
		check("the first has left", "4")
		second()
		check("both have left", "")
		<-time.After(time.Minute)
		check("long after", "")
		if n := asked.Load(); n != 4 {
			t.Errorf("asked %d times", n)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A snapshot follows the run's keys.
func TestSnapshot(t *testing.T) {
	const state, answer = `{"round":3,"restarts":1,"members":[{"s":"A","n":2},{"s":"B","n":4}]}`,
		`{"kind":"wait","note":"a spare"}`
	agent := func(host string) string { return fmt.Sprintf(`{"node":{"host":%q,"nproc":2},"phase":"busy"}`, host) }
	o := &observer{prefix: "run/", keys: map[string][]byte{}}
	for _, step := range []struct{ key, value, want string }{
		{"watcher/X", "{}", "no round"},
		{"agent/B", agent("node2"), "no round node2=-1:"},
		{"state/round/3", state, "round 3 =0:lost node2=1:"},
		{"agent/A", agent("node10"), "round 3 node10=0: node2=1:"},
		{"agent/D", agent("node11"), "round 3 node10=0: node2=1: node11=-1:"},
		{"agent/C", agent("node1"), "round 3 node10=0: node2=1: node1=-1: node11=-1:"},
		{"answer/C", answer, "round 3 node10=0: node2=1: node1=-1:(a spare) node11=-1:"},
		{"status/B", "hello", "round 3 node10=0: node2=1:hello node1=-1:(a spare) node11=-1:"},
		{"agent/D", "not JSON", "round 3 node10=0: node2=1:hello =-1:lost node1=-1:(a spare)"},
		{"agent/D", "", "round 3 node10=0: node2=1:hello node1=-1:(a spare)"},
		{"agent/A", "", "round 3 =0:lost node2=1:hello node1=-1:(a spare)"},
		{"state/round/2", `{"round":2}`, "round 3 =0:lost node2=1:hello node1=-1:(a spare)"},
		{"state/round/3", "", "round 3 =0:lost node2=1:hello node1=-1:(a spare)"},
		{"state/result", `{"ending":"failed"}`, "round 3 =0:lost node2=1:hello node1=-1:(a spare) failed"},
	} {
		o.apply(coord.Batch{Events: []coord.Event{{
			Key: "run/" + step.key, Value: []byte(step.value),
			Deleted: step.value == "",
		}}})
		v := o.snapshot()
		if diff := cmp.Diff(step.want, strings.TrimSpace(v.brief())); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", step.key, diff)
		}
		if v.Empty() != (step.want == "no round") || v.Complete() {
			t.Errorf("after %s: empty %v, complete %v", step.key, v.Empty(), v.Complete())
		}
	}
	o.apply(coord.Batch{Events: []coord.Event{{Key: "run/status/C", Value: []byte("x")}}})
	if !o.snapshot().Complete() {
		t.Errorf("not complete: %s", o.snapshot().brief())
	}
}

// An observer takes no part: no round has it, no round waits for it, and the store's host ends without it.
func TestObserveChangesNothing(t *testing.T) {
	j := job(2, 3)
	j.LastCall = 0
	hs, waits := enterAll(t, j, 2, func(_ int, h *Handler) {
		h.opts.Status, h.opts.StatusInterval = func(context.Context) []byte { return []byte("busy") }, time.Second
	})
	host := hs[0].opts.Access.(*C10d)
	observer := &C10d{RunID: "run", Host: "127.0.0.1", Ports: host.Ports}
	store, err := observer.OpenObserver(t.Context(), coord.RoleObserver, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	snapshots, observed := make(chan string, 1000), make(chan error, 1)
	go func() {
		observed <- Observe(t.Context(), store, "run", func(v Snapshot) error {
			snapshots <- v.brief()
			return nil
		})
	}()
	for _, w := range waits {
		if got := await(t, "first round", w); got.err != nil || got.round.WorldSize != 2 {
			t.Fatalf("%+v", got)
		}
	}
	for got := ""; got != "round 0 node0=0:busy node1=1:busy"; {
		got = await(t, "a snapshot of both", snapshots)
	}
	if reached := host.hosted().server.ReachedAt(); len(reached) != 1 {
		t.Errorf("reached at %v", reached)
	}
	ends := make(chan error, len(hs))
	for _, h := range hs {
		go func() {
			_, err := h.Succeed(t.Context(), rdzv.NoTimeout)
			ends <- errors.Join(err, h.Shutdown(t.Context()))
		}()
	}
	for range hs {
		if err := await(t, "the end", ends); err != nil {
			t.Error(err)
		}
	}
	if err := await(t, "the end of Observe", observed); !errors.Is(err, coord.ErrUnavailable) &&
		!errors.Is(err, coord.ErrSessionLost) {
		t.Errorf("Observe ended with %v", err)
	}
	_ = store.Close(context.WithoutCancel(t.Context()))
}

// An observer of a run with several ports finds the run's store, and no other run's.
func TestOpenObserverFindsThePort(t *testing.T) {
	p := newMachine(t, 3)
	all := p.ports
	p.ports = all[:1]
	p.open("other")
	p.ports = all
	p.open("mine")
	p.check(func(string) int { return 1 })
	for _, tt := range []struct {
		runID string
		port  int // 0: none
	}{{"mine", all[1]}, {"other", all[0]}, {"nobody's", 0}} {
		observer := &C10d{RunID: tt.runID, Version: "test", Host: "127.0.0.1", Ports: all}
		within := time.Minute
		if tt.port == 0 {
			within = 2 * time.Second
		}
		store, err := observer.OpenObserver(t.Context(), coord.RoleObserver, within)
		if tt.port == 0 {
			if err == nil {
				t.Errorf("%s: found", tt.runID)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.runID, err)
			continue
		}
		found, err := listKeys(t.Context(), store, rounds.PrefixOf(tt.runID)+rounds.PrefixAgent)
		if err != nil || len(found) != 1 {
			t.Errorf("%s: the store has %v, %v", tt.runID, found, err)
		}
		_ = store.Close(t.Context())
	}
	p.close()
}

// An observer sees that a node has left with success, not that it was lost.
func TestObserverSeesDepartures(t *testing.T) {
	encode := func(v any) []byte { return must(rounds.EncodeValue(v)) }
	record := rounds.Record{Round: 3, Members: []rounds.RecordMember{{ID: "a", Nproc: 2}, {ID: "b", Nproc: 2}}}
	d := rounds.DepartedMember{Round: 3, Rank: 1, Node: rounds.Node{Host: "node1"}}
	o := &observer{keys: map[string][]byte{
		rounds.RoundKey(3): encode(record), d.Key(): encode(d), rounds.PrefixAgent + "a": encode(rounds.Report{Node: rounds.Node{Host: "node0"}}),
		rounds.PrefixStatus + "a": []byte("{}"),
	}}
	s := o.snapshot()
	want := AgentStatus{Rank: 1, Host: "node1", Nproc: 2, Departed: true, Note: "had finished and left"}
	if diff := cmp.Diff(want, s.Agents[1]); diff != "" || !s.Complete() {
		t.Errorf("complete: %v\n%s", s.Complete(), diff)
	}
}

// An observer sees that a node had finished, not that it was lost.
func TestObserverSeesSuccesses(t *testing.T) {
	encode := func(v any) []byte { return must(rounds.EncodeValue(v)) }
	record := rounds.Record{Round: 3, Members: []rounds.RecordMember{{ID: "a"}, {ID: "b", Host: "node1"}, {ID: "c", Host: "node2"}}}
	o := &observer{keys: map[string][]byte{
		rounds.RoundKey(3):       encode(record),
		rounds.SuccessKey(3, 1):  encode(rounds.Successes{Round: 3, Session: "a", Bits: []byte{2}}),
		rounds.PrefixAgent + "a": encode(rounds.Report{Node: rounds.Node{Host: "node0"}}),
	}}
	want := []AgentStatus{
		{Rank: 1, Host: "node1", Departed: true, Note: "had finished, and its agent has ended"},
		{Rank: 2, Host: "node2", Lost: true},
	}
	if diff := cmp.Diff(want, o.snapshot().Agents[1:]); diff != "" {
		t.Error(diff)
	}
}
