package status

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/events"
)

// epoch is when the sample job begins.
var epoch = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

// at returns the record with its time, seconds after epoch, and its place in a round.
func at(second int, round int, r events.Event) events.Event {
	r.Time, r.RunID, r.Host = epoch.Add(time.Duration(second)*time.Second), "job7", "node3"
	r.Group.Role, r.Group.Budget = "default", 2
	if round >= 0 {
		r.Round, r.NodeRank = new(round), new(1)
	}
	return r
}

func started(second, round, rank int) events.Event {
	return at(second, round, events.Event{
		Kind: events.KindWorkerStarted, Rank: new(2 + rank), LocalRank: new(rank),
		PID: 100*round + rank + 40,
	})
}

func gone(second, round, rank, code int, stopped bool) events.Event {
	return at(second, round, events.Event{
		Kind: events.KindWorkerEnded, Rank: new(2 + rank), LocalRank: new(rank), PID: 100*round + rank + 40,
		ExitCode: new(code), Stopped: stopped,
	})
}

func begun(second, round int, verdict string, restarts int) events.Event {
	return at(second, round, events.Event{
		Kind: events.KindRound, Verdict: verdict, Nodes: 3, WorldSize: 6, Restarts: new(restarts), MaxRestarts: new(2),
		Group: events.Group{Restarts: restarts}, Duration: time.Millisecond,
	})
}

// life returns the events of a job, as one of its nodes sees them, and after each the state of the node and of each
// worker, and the counts.
func life() (records []events.Event, want []string) {
	for _, step := range []struct {
		r    events.Event
		want string
	}{
		{at(0, -1, events.Event{
			Kind: events.KindLauncherStarted, Name: "train.py", Version: "1.0", Backend: "c10d",
			LocalWorldSize: 2, PID: 7,
		}), "starting 0:"},
		{at(1, -1, events.Event{Kind: events.KindWaiting}), "waiting 1:"},
		{begun(2, 0, events.VerdictFirst, 0), "starting 2: starting starting rounds=1"},
		{started(3, 0, 0), "running 3: running starting rounds=1"},
		{started(3, 0, 1), "running 3: running running rounds=1"},
		{gone(9, 0, 1, 1, false), "running 3: running failed rounds=1"},
		{
			at(9, 0, events.Event{Kind: events.KindStop, Why: "local rank 1: exited with code 1"}),
			"stopping 9: running failed rounds=1 why=local rank 1: exited with code 1",
		},
		{gone(10, 0, 0, 143, true), "stopping 9: stopped failed rounds=1 why=local rank 1: exited with code 1"},
		{
			at(9, 0, events.Event{Kind: events.KindFailure, Rank: new(3), Cause: "exception", Summary: "boom"}),
			"stopping 9: stopped failed rounds=1 why=local rank 1: exited with code 1 failures=1 boom",
		},
		{
			at(9, 0, events.Event{Kind: events.KindFailure, Rank: new(2), Cause: "peer", Summary: "closed"}),
			"stopping 9: stopped failed rounds=1 why=local rank 1: exited with code 1 failures=2 boom",
		},
		{at(11, 0, events.Event{Kind: events.KindWaiting}), "waiting 11: stopped failed rounds=1 failures=2 boom"},
		{begun(12, 1, events.VerdictRestart, 1), "starting 12: starting starting rounds=2 restarts=1 failures=2 boom"},
		{
			begun(13, 2, events.VerdictMembership, 1),
			"starting 12: starting starting rounds=3 restarts=1 members=1 failures=2 boom",
		},
		{started(14, 2, 0), "running 14: running starting rounds=3 restarts=1 members=1 failures=2 boom"},
		{started(14, 2, 1), "running 14: running running rounds=3 restarts=1 members=1 failures=2 boom"},
		{gone(20, 2, 0, 0, false), "running 14: succeeded running rounds=3 restarts=1 members=1 failures=2 boom"},
		{gone(21, 2, 1, 0, false), "running 14: succeeded succeeded rounds=3 restarts=1 members=1 failures=2 boom"},
		{
			at(22, 2, events.Event{Kind: events.KindSucceeded}),
			"finished 22: succeeded succeeded rounds=3 restarts=1 members=1 failures=2 boom",
		},
		{
			at(23, 2, events.Event{Kind: events.KindEnd, Reason: "success", ExitCode: new(0)}),
			"ended 23: succeeded succeeded rounds=3 restarts=1 members=1 why=success failures=2 boom",
		},
	} {
		records, want = append(records, step.r), append(want, step.want)
	}
	return records, want
}

func inBrief(s Snapshot) string {
	text := fmt.Sprintf("%s %d:", s.State, int(s.Since.Sub(epoch).Seconds()))
	for _, w := range s.Workers {
		text += " " + string(w.State)
	}
	for _, n := range []struct {
		name string
		n    int
	}{{"rounds", s.Rounds}, {"restarts", s.Restarts}, {"members", s.MembershipChanges}} {
		if n.n > 0 {
			text += fmt.Sprintf(" %s=%d", n.name, n.n)
		}
	}
	if s.Why != "" {
		text += " why=" + s.Why
	}
	if s.Failures > 0 {
		text += fmt.Sprintf(" failures=%d %s", s.Failures, s.LastFailure.Summary)
	}
	return text
}

func TestTracker(t *testing.T) {
	var b Tracker
	if s := b.Snapshot(); s.State != Starting || s.Workers == nil || s.GPUs == nil {
		t.Errorf("before anything: %+v", s)
	}
	records, want := life()
	for i, r := range records {
		before := b.Snapshot()
		kept := inBrief(before)
		b.Emit(r)
		if diff := cmp.Diff(want[i], inBrief(b.Snapshot())); diff != "" {
			t.Errorf("record %d, %s (-want +got):\n%s", i, r.Kind, diff)
		}
		if inBrief(before) != kept {
			t.Errorf("record %d changes a snapshot that was taken before", i)
		}
	}
	s := b.Snapshot()
	if *s.Round != 2 || *s.NodeRank != 1 || s.Nodes != 3 || s.WorldSize != 6 || s.RunID != "job7" || s.PID != 7 ||
		s.Workers[1].PID != 241 {
		t.Errorf("%+v", s)
	}
}

// Events that do not fit the state, such as those of a defect, change nothing.
func TestTrackerTakesAnything(t *testing.T) {
	var b Tracker
	for _, r := range []events.Event{
		{Kind: "unknown"},
		{Kind: events.KindWorkerEnded},
		{Kind: events.KindWorkerStarted, Rank: new(0), LocalRank: new(5)},
		{Kind: events.KindWorkerStarted, Rank: new(0), LocalRank: new(-1)},
		{Kind: events.KindFailure},
		{Kind: events.KindRound},
	} {
		b.Emit(r)
	}
	if s := b.Snapshot(); len(s.Workers) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestBrief(t *testing.T) {
	s := Snapshot{Schema: Schema, State: Running, Workers: make([]Worker, 100)}
	for i := range s.Workers {
		s.Workers[i] = Worker{LocalRank: i, LastLine: strings.Repeat("x", 100)}
	}
	for _, tt := range []struct{ limit, want int }{{1 << 20, 100}, {8 << 10, 25}, {1, 0}} {
		data := s.Brief(tt.limit)
		got, err := parse(data)
		if err != nil || len(got.Workers) != tt.want || got.WorkersLeftOut != 100-tt.want || tt.want > 0 &&
			len(data) > tt.limit {
			t.Errorf("in %d bytes: %d workers and %d left out in %d bytes, %v", tt.limit, len(got.Workers),
				got.WorkersLeftOut, len(data), err)
		}
	}
	if len(s.Workers) != 100 {
		t.Error("Brief has changed the snapshot")
	}
}

func TestParse(t *testing.T) {
	for text, good := range map[string]bool{
		`{"schema":1,"state":"running"}`: true, `{"schema":2,"state":"new","more":1}`: true,
		`{}`: false, `[]`: false, `hello`: false, `{"schema":1}`: false, ``: false,
	} {
		if _, err := parse([]byte(text)); (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
	}
	data, err := json.Marshal(sample())
	if err != nil {
		t.Fatal(err)
	}
	got, err := parse(data)
	if err != nil {
		t.Fatal(err)
	}
	got.Agent = sample().Agent // is not in the JSON
	if diff := cmp.Diff(sample(), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestWaits checks what a snapshot says about a wait: only while the agent waits, and with its time.
func TestWaits(t *testing.T) {
	var b Tracker
	b.Waits(epoch, "too early")
	if s := b.Snapshot(); s.Why != "" {
		t.Errorf("before: %+v", s)
	}
	b.Emit(at(1, -1, events.Event{Kind: events.KindWaiting}))
	b.Waits(epoch.Add(5*time.Second), "1 of 2 nodes have joined")
	s := b.Snapshot()
	if got := whyText(s, epoch.Add(8*time.Second)); got != "1 of 2 nodes have joined (3s ago)" {
		t.Errorf("%q", got)
	}
	b.Waits(epoch, "")
	if s := b.Snapshot(); s.Why != "" || s.WhyTime != nil {
		t.Errorf("not known: %+v", s)
	}
	b.Waits(epoch, "again")
	b.Emit(at(9, 0, events.Event{Kind: events.KindStop, Why: "told to"}))
	b.Waits(epoch, "too late")
	if s := b.Snapshot(); s.Why != "told to" || s.WhyTime != nil {
		t.Errorf("after: %+v", s)
	}
}

// TestSuspended checks which workers count as suspended: those that run and are stopped. A node is suspended if all
// workers that run are.
func TestSuspended(t *testing.T) {
	for states, want := range map[string]bool{"TT": true, "TR": false, "T-": true, "--": false, "": false} {
		s := Snapshot{State: Running}
		for i, state := range states {
			w := Worker{PID: i, State: WorkerRunning}
			if state == '-' {
				w.State = WorkerSucceeded
			}
			s.Workers = append(s.Workers, w)
		}
		s.markSuspended(func(pid int) bool { return states[pid] != 'R' })
		if got := s.State == Suspended; got != want {
			t.Errorf("%q: %v", states, got)
		}
		for i, w := range s.Workers {
			want := map[byte]WorkerState{'T': WorkerSuspended, 'R': WorkerRunning, '-': WorkerSucceeded}[states[i]]
			if w.State != want || w.alive() != (states[i] != '-') {
				t.Errorf("%q: worker %d is %s, alive: %v", states, i, w.State, w.alive())
			}
		}
	}
}

// TestStoreOfAgents checks that an agent shows who keeps the store to commands on its machine, and not to those that
// read the store themselves.
func TestStoreOfAgents(t *testing.T) {
	var first, second Tracker
	store := &Store{Voters: []string{"a:1", "b:2", "c:3"}, Leader: "b:2", SurvivesLoss: true}
	second.StoreChanged(store)
	if diff := cmp.Diff(store, OfAgents([]Snapshot{first.Snapshot(), second.Snapshot()}).Store); diff != "" {
		t.Error(diff)
	}
	if brief := second.Snapshot().Brief(maxReply); strings.Contains(string(brief), `"store"`) {
		t.Errorf("Brief has the store: %s", brief)
	}
}
