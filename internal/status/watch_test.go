package status

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/jobs"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// seenJob has an agent that answers, one that does not, one that is lost, one that has left and one that waits.
func seenJob() elastic.Snapshot {
	answer, _ := json.Marshal(Snapshot{Schema: 1, State: Running})
	return elastic.Snapshot{
		Job: &rounds.Job{MaxRestarts: 3},
		Record: &rounds.Record{
			Round: 5, Restarts: 1, Members: []rounds.RecordMember{{Nproc: 2}, {Nproc: 2}, {Nproc: 4}, {Nproc: 1}},
		},
		Agents: []elastic.AgentStatus{
			{Rank: 0, Host: "a", Nproc: 2, Status: answer},
			{Rank: 1, Host: "b", Nproc: 2, Status: []byte("no JSON")},
			{Rank: 2, Nproc: 4, Lost: true},
			{Rank: 3, Host: "c", Nproc: 1, Departed: true, Note: "had finished and left"},
			{Rank: -1, Host: "d", Nproc: 2, Note: "a spare"},
		},
	}
}

func TestJobOf(t *testing.T) {
	now := time.Unix(1e9, 0)
	want := Job{
		Schema: 1, Time: report.Time{Time: now}, RunID: "run",
		Round: &Round{Number: 5, Nodes: 4, WorldSize: 9, Restarts: 1, MaxRestarts: 3},
		Nodes: []Node{
			{Rank: new(0), Host: "a", Workers: 2, Status: &Snapshot{Schema: 1, State: Running}},
			{Rank: new(1), Host: "b", Workers: 2},
			{Rank: new(2), Workers: 4, Note: "lost"},
			{Rank: new(3), Host: "c", Workers: 1, Left: true, Note: "had finished and left"},
			{Host: "d", Workers: 2, Note: "a spare"},
		},
	}
	if diff := cmp.Diff(want, jobOf("run", seenJob(), now)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	ended := elastic.Snapshot{Outcome: &rdzv.Outcome{
		Ending: rdzv.EndFailed,
		Cause:  &rdzv.Failure{Failure: failure.Failure{GlobalRank: 3, Host: "a", Summary: "boom"}},
	}}
	over := seenJob()
	over.Outcome = &rdzv.Outcome{Ending: rdzv.EndSucceeded}
	if n := jobOf("run", over, now).Nodes[2]; n.Note != "ended" {
		t.Errorf("after the end: %+v", n)
	}
	if j := jobOf("run", ended, now); j.Round != nil || j.Result != "failed" || j.Why != "rank 3 on a: boom" ||
		j.Nodes == nil {
		t.Errorf("%+v", j)
	}
}

// A job is shown at once if all agents have answered, after a while if not, and then every two seconds until the end.
func TestShowSnapshots(t *testing.T) {
	complete := seenJob()
	complete.Agents = complete.Agents[:1]
	over := complete
	over.Outcome = &rdzv.Outcome{Ending: rdzv.EndSucceeded}
	for _, tt := range []struct {
		name      string
		watch     bool
		snapshots []elastic.Snapshot // one a second
		lost      time.Duration      // when the store goes; 0: never
		want      []time.Duration
		shown     bool
		bad       bool
	}{
		{
			name: "all answer", snapshots: []elastic.Snapshot{seenJob(), complete, over}, want: []time.Duration{time.Second},
			shown: true,
		},
		{
			name: "not all answer", snapshots: []elastic.Snapshot{seenJob(), seenJob()}, want: []time.Duration{agentTimeout},
			shown: true,
		},
		{name: "no such run", snapshots: []elastic.Snapshot{{}}, shown: true, bad: true},
		{name: "the store goes before", snapshots: []elastic.Snapshot{seenJob()}, lost: 2 * time.Second},
		{
			name: "watched", watch: true, snapshots: []elastic.Snapshot{
				complete, complete, complete, complete, complete,
				over,
			}, shown: true,
			want: []time.Duration{0, 2 * time.Second, 4 * time.Second, 5 * time.Second},
		},
		{
			name: "watched until the store goes", watch: true, snapshots: []elastic.Snapshot{complete}, lost: time.Second,
			want: []time.Duration{0}, shown: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				snapshots, ended := make(chan elastic.Snapshot), make(chan error, 1)
				go func() {
					for _, v := range tt.snapshots {
						select {
						case snapshots <- v:
						case <-ctx.Done():
							return
						}
						select {
						case <-time.After(time.Second):
						case <-ctx.Done():
							return
						}
					}
				}()
				if tt.lost > 0 {
					go func() {
						<-time.After(tt.lost)
						ended <- coord.ErrUnavailable
					}()
				}
				begun := time.Now()
				var at []time.Duration
				shown, err := showSnapshots(ctx, &config.Status{Watch: tt.watch}, snapshots, ended, func(Job) error {
					at = append(at, time.Since(begun))
					return nil
				})
				if _, bad := errors.AsType[*config.UsageError](err); bad != tt.bad || shown != tt.shown {
					t.Errorf("shown %v, %v", shown, err)
				}
				if diff := cmp.Diff(tt.want, at); diff != "" {
					t.Errorf("shown at (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestWatchSaysWhyItEnds checks the last line of --watch.
func TestWatchSaysWhyItEnds(t *testing.T) {
	for err, want := range map[error]string{
		errNotListening:         "elasticrun: the agent has ended: succeeded\n",
		errEnded:                "elasticrun: the agent has ended: succeeded\n",
		errors.New("no answer"): "elasticrun: the agent does not reply any more: no answer\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			var shown, notes strings.Builder
			cfg := &config.Status{Watch: true}
			how := func() string { return ": succeeded" }
			asked := 0
			fetch := func() (Job, error) {
				if asked++; asked > 2 {
					return Job{}, err
				}
				return Job{RunID: "a"}, nil
			}
			if err := repeat(t.Context(), cfg, NewPrinter(cfg, &shown, &notes), "the agent", fetch, how); err != nil {
				t.Error(err)
			}
			if notes.String() != want || strings.Count(shown.String(), "run id a: no round yet") != 2 {
				t.Errorf("%v: %q, shown %q", err, &notes, &shown)
			}
			interrupted, cancel := context.WithCancel(t.Context())
			cancel()
			notes.Reset()
			asked = 2
			if err := repeat(interrupted, cfg, NewPrinter(cfg, &shown, &notes), "the agent", fetch, how); err != nil || notes.Len() > 0 {
				t.Errorf("interrupted: %v, %q", err, &notes)
			}
		})
	}
}

// TestFit checks that a text fits into a terminal.
func TestFit(t *testing.T) {
	const text = "0123456789\nloss 0.5 \u8a13\u7df4\n\nd\ne\n"
	for _, tt := range []struct {
		width, height int
		want          string
	}{
		{0, 0, text},
		{13, 7, text},
		{12, 7, "0123456789\nloss 0.5 \u8a13…\n\nd\ne\n"},
		{11, 7, "0123456789\nloss 0.5 …\n\nd\ne\n"},
		{10, 6, "0123456789\nloss 0.5 …\n\nd\ne\n"},
		{9, 5, "01234567…\nloss 0.5…\n\n… 2 more…\n"},
		{1, 1, "…\n…\n\nd\ne\n"},
	} {
		got := fit(text, func() (int, int) { return tt.width, tt.height })
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%d x %d (-want +got):\n%s", tt.width, tt.height, diff)
		}
	}
}

// TestHowEnded checks that the end of a launcher is not taken from the record of another one.
func TestHowEnded(t *testing.T) {
	machine := jobs.Folders{t.TempDir()}
	l := jobs.Launcher{RunID: "a", PID: 7, Started: time.Unix(1e9, 5)}
	if got := howEnded(machine, l); got != "" {
		t.Errorf("before: %q", got)
	}
	again := l
	again.Started = l.Started.Add(time.Second)
	for _, e := range []jobs.Ended{
		{Launcher: l, At: time.Unix(2e9, 0), ExitCode: 3, Reason: "worker_failed", Summary: "rank 1: boom\x1b"},
		{Launcher: again, At: time.Unix(2e9, 0), Reason: "success"},
	} {
		if err := machine.RecordEnd(e); err != nil {
			t.Fatal(err)
		}
	}
	if got := howEnded(machine, l); got != ": exit code 3: rank 1: boom" {
		t.Errorf("%q", got)
	}
	if got := howEnded(machine, again); got != ": succeeded" {
		t.Errorf("%q", got)
	}
}

// TestPrinter checks what --watch prints: on a terminal the latest status alone, cut to the terminal, elsewhere one
// after the other.
func TestPrinter(t *testing.T) {
	j := Job{RunID: "job7", Result: "failed", Why: "rank 3 on node1: boom"}
	var shown strings.Builder
	p := NewPrinter(&config.Status{Watch: true}, &shown, &shown)
	show := func() {
		for range 2 {
			if err := p.Show(j); err != nil {
				t.Error(err)
			}
		}
	}
	show()
	const line = "run id job7: ended: failed: rank 3 on node1: boom\n"
	if diff := cmp.Diff(line+"\n"+line, shown.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	shown.Reset()
	p.size = func() (int, int) { return 20, 10 }
	show()
	const cut = clearScreen + "run id job7: ended:…\n"
	if diff := cmp.Diff(cut+cut, shown.String()); diff != "" {
		t.Errorf("terminal (-want +got):\n%s", diff)
	}
	p.cfg = &config.Status{}
	shown.Reset()
	if err := p.Show(j); err != nil || !strings.HasSuffix(shown.String(), line) {
		t.Errorf("without --watch: %q, %v", &shown, err)
	}
}
