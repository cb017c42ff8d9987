package status

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/jobs"
	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// runningJobs returns three launchers and their states: two of one job of which one does not reply, and a job of one
// node.
func runningJobs() ([]jobs.Running, []*Snapshot) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.Local)
	two := jobs.Launcher{RunID: "job7", Script: "train.py", Backend: "c10d", Endpoint: "h:29400", LogDir: "/logs/a b", PID: 7, Started: at}
	other, one := two, jobs.Launcher{RunID: "none\x1b[31m", Script: "x\n.py", PID: 9, Started: at}
	other.PID = 8
	return []jobs.Running{{Launcher: two}, {Launcher: other}, {Launcher: one, UID: 4_000_000}},
		[]*Snapshot{nil, {
			State: Running, Round: new(2), Nodes: 2, WorldSize: 8, Restarts: 1, MaxRestarts: 3,
		}, {State: Waiting}}
}

func TestJobsText(t *testing.T) {
	all := groupJobs(runningJobs())
	all[0].User = "me"
	all[1].Why, all[1].WhyTime = "1 of 2 nodes have joined", &report.Time{Time: all[1].Since.Add(-time.Minute)}
	const want = `USER     RUN ID           SCRIPT  NODES  WORKERS  STATE    RESTARTS  SINCE                PID  LOGS
me       job7             train.py  2      8        running  1/3       2026-05-04 03:02:01  7,8  "/logs/a b"
4000000  "none\x1b[31m"  x; .py    -      -        waiting  -         2026-05-04 03:02:01  9    -

"none\x1b[31m" waits: 1 of 2 nodes have joined (1m ago)
`
	got := jobsText(all, true, all[1].Since.Time)
	if fields := func(s string) string { return strings.Join(strings.Fields(s), " ") }; fields(got) != fields(want) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
	}
	rows, _, _ := strings.Cut(got, "\n\n")
	for line := range strings.Lines(rows) {
		if at := strings.Index(got, "NODES"); line[at-2:at] != "  " || line[at] == ' ' {
			t.Errorf("column NODES is not aligned:\n%s", got)
		}
	}
	if got := jobsText(nil, false, time.Now()); got != "no job of yours runs on this machine\n" {
		t.Error(got)
	}
}

// A job of another user does not make root's list too wide to read.
func TestJobsTextLong(t *testing.T) {
	long := strings.Repeat("x", 60_000)
	j := LocalJob{RunID: long, Script: long, State: State(long), LogDir: "/" + long}
	rows := strings.Split(jobsText([]LocalJob{{RunID: "job7", State: Waiting}, j}, true, time.Now()), "\n")
	if len(rows[0]) > 500 || len(rows[1]) > 500 || len(rows[2]) > 5000 {
		t.Errorf("lines of %d, %d and %d bytes", len(rows[0]), len(rows[1]), len(rows[2]))
	}
}

func TestGroupJobs(t *testing.T) {
	running, states := runningJobs()
	for _, change := range []func(*jobs.Running){
		func(r *jobs.Running) { r.RunID = "job8" },
		func(r *jobs.Running) { r.Endpoint = "i:29400" },
		func(r *jobs.Running) { r.Backend = "static" },
		func(r *jobs.Running) { r.UID++ },
	} {
		changed := append([]jobs.Running{}, running...)
		change(&changed[1])
		if got := len(groupJobs(changed, states)); got != 3 {
			t.Errorf("%+v: %d jobs", changed[1], got)
		}
	}
	running[0].Endpoint, running[1].Endpoint = "", ""
	got := groupJobs(running, states)
	if len(got) != 3 || got[0].State != NoReply {
		t.Errorf("jobs of one node: %+v", got)
	}
}

func TestChoose(t *testing.T) {
	a, b, twin, foreign := LocalJob{RunID: "a", uid: 1}, LocalJob{RunID: "b", uid: 1}, LocalJob{RunID: "a", uid: 1}, LocalJob{RunID: "f", uid: 2}
	long, longer := LocalJob{RunID: "job7", uid: 1}, LocalJob{RunID: "job77", uid: 1}
	foreignLong := LocalJob{RunID: "foo", uid: 2}
	for _, tt := range []struct {
		name, runID string
		all         []LocalJob
		want, err   string
		usage       bool
	}{
		{name: "the only one", all: []LocalJob{a, foreign}, want: "a"},
		{name: "by id", all: []LocalJob{a, b}, runID: "b", want: "b"},
		{name: "of another user by id", all: []LocalJob{a, foreign}, runID: "f", want: "f"},
		{name: "none", err: "no job of yours runs on this machine"},
		{name: "none with the id", all: []LocalJob{a}, runID: "x", err: "no job of yours with the run id x"},
		{name: "only of others", all: []LocalJob{foreign}, err: "choose one of other users by --rdzv-id: f"},
		{name: "several", all: []LocalJob{a, b}, err: "which job? 2 run on this machine: a", usage: true},
		{name: "by the start of an id", all: []LocalJob{long, a, foreign}, runID: "jo", want: "job7"},
		{name: "an id that begins another", all: []LocalJob{long, longer}, runID: "job7", want: "job7"},
		{
			name: "the start of two ids", all: []LocalJob{long, longer}, runID: "job", usage: true,
			err: "--rdzv-id=job: 2 jobs have run ids that begin so: job7 (, pid unknown, of user",
		},
		{name: "the start of a foreign id", all: []LocalJob{foreignLong}, runID: "fo", err: "no job of yours with the run id fo"},
		{name: "several with the id", all: []LocalJob{a, twin, b}, runID: "a", err: "--rdzv-id=a: 2 jobs", usage: true},
	} {
		j, err := choose(tt.all, tt.runID, 1)
		_, usage := errors.AsType[*config.UsageError](err)
		if j.RunID != tt.want || (err == nil) != (tt.err == "") || usage != tt.usage ||
			err != nil && (!strings.Contains(err.Error(), tt.err) || !usage && !errors.Is(err, rdzv.ErrConnection)) {
			t.Errorf("%s: %q, %v", tt.name, j.RunID, err)
		}
	}
	own, planted := LocalJob{RunID: "a", uid: 0, Script: "own"}, LocalJob{RunID: "a", uid: 61299, Script: "planted"}
	for _, all := range [][]LocalJob{{own, planted}, {planted, own}} {
		if j, err := choose(all, "a", 0); err != nil || j.Script != "own" {
			t.Errorf("root with a job of the same run id: %+v, %v", j, err)
		}
	}
	many := make([]LocalJob, 12)
	if got := describeJobs(many); !strings.HasSuffix(got, ", 2 more") {
		t.Error(got)
	}
}

// TestOfScheduler checks which jobs of this machine come before the endpoint that a scheduler's job would use.
func TestOfScheduler(t *testing.T) {
	all := []LocalJob{
		{RunID: "a", uid: 1, schedulerJob: "slurm 12"},
		{RunID: "b", uid: 1},
		{RunID: "c", uid: 2, schedulerJob: "slurm 12"},
		{RunID: "d", uid: 1, schedulerJob: "slurm 13"},
	}
	for _, tt := range []struct {
		asked config.InferredTarget
		want  string
	}{
		{config.InferredTarget{SchedulerJob: "slurm 12"}, "a"},
		{config.InferredTarget{SchedulerJob: "slurm 14"}, ""},
		{config.InferredTarget{SchedulerJob: "slurm 12", RunID: "b"}, "b"},
		{config.InferredTarget{SchedulerJob: "slurm 12", RunID: "x"}, ""},
		{config.InferredTarget{SchedulerJob: "slurm 12", RunID: "c"}, ""},
		{config.InferredTarget{}, ""},
	} {
		var got []string
		for _, j := range ofScheduler(all, tt.asked, 1) {
			got = append(got, j.RunID)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%+v: %v, want %s", tt.asked, got, tt.want)
		}
	}
}

// TestServeLocal checks what a launcher replies on its socket.
func TestServeLocal(t *testing.T) {
	machine := jobs.Folders{t.TempDir()}
	entry, err := machine.Register(jobs.Launcher{RunID: "a", PID: 7, Started: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	var tracker Tracker
	observer := NewObserver(&tracker, Sources{})
	defer observer.Close()
	tracker.Emit(events.Event{Kind: events.KindLauncherStarted, RunID: "a", Host: "h"})
	var closed error
	var closers []string
	var log strings.Builder
	server := ServeLocal(entry, observer, config.Secret{}, func(_ context.Context, by string) error {
		closers = append(closers, by)
		return closed
	}, zerolog.New(&log))
	if got := LocalJobs(t.Context(), machine, false); len(got) != 1 || got[0].State != Starting || got[0].PIDs[0] != 7 {
		t.Errorf("listed %+v", got)
	}
	l := machine.List(false)[0]
	if s, err := fetchLocal(t.Context(), l, "/status"); err != nil || s.Host != "h" {
		t.Errorf("%+v, %v", s, err)
	}
	if err := requestStop(t.Context(), l, "me\x1b"); err != nil || !strings.Contains(log.String(), `"by":"me\\x1b"`) ||
		!slices.Equal(closers, []string{`me\x1b`}) {
		t.Errorf("%v, asked by %q, logged %s", err, closers, &log)
	}
	closed = &rdzv.EndedError{Outcome: rdzv.Outcome{Ending: rdzv.EndSucceeded}}
	if ended, ok := errors.AsType[*rdzv.EndedError](requestStop(t.Context(), l, "me")); !ok || ended.Outcome.Ending != rdzv.EndSucceeded {
		t.Errorf("after the end: %v", ended)
	}
	closed = &rdzv.EndedError{Outcome: rdzv.Outcome{Ending: rdzv.EndClosed, ClosedBy: closers[0]}}
	_, err = Stop(t.Context(), &config.Stop{Target: config.Target{Local: true, RunID: "a"}}, machine, "v")
	const already = `run id "a" is being closed already, by me\x1b; its workers may still be stopping`
	if late, ok := errors.AsType[*StoppedLateError](err); !ok || late.Error() != already {
		t.Errorf("closed before: %v", err)
	}
	closed = errors.New("not joined")
	if err := requestStop(t.Context(), l, "me"); err == nil || err.Error() != "not joined" {
		t.Error(err)
	}
	server.Close()
	if err := requestStop(t.Context(), l, "me"); err == nil || err.Error() != "it has just ended" {
		t.Error(err)
	}
	if got := machine.List(false); len(got) != 0 {
		t.Errorf("left %+v", got)
	}
}

// serveLauncher registers a launcher and serves its status until the test ends. The status follows from the events that
// its tracker gets.
func serveLauncher(
	t *testing.T, machine jobs.Folders, l jobs.Launcher, secret config.Secret, closeRun CloseRun,
) *Tracker {
	t.Helper()
	entry, err := machine.Register(l)
	if err != nil {
		t.Fatal(err)
	}
	tracker := &Tracker{}
	observer := NewObserver(tracker, Sources{})
	server := ServeLocal(entry, observer, secret, closeRun, zerolog.Nop())
	t.Cleanup(func() {
		server.Close()
		observer.Close()
	})
	return tracker
}

// TestStopNotJoined checks that all launchers are asked, and that the run counts as closed only if one of them has
// closed it.
func TestStopNotJoined(t *testing.T) {
	machine := jobs.Folders{t.TempDir()}
	replies, asked := map[int]error{}, map[int]int{}
	for pid := 1; pid <= 2; pid++ {
		l := jobs.Launcher{RunID: "a", PID: pid, Started: time.Unix(int64(pid), 0)}
		serveLauncher(t, machine, l, config.Secret{}, func(context.Context, string) error {
			asked[pid]++
			return replies[pid]
		})
	}
	ended := &rdzv.EndedError{Outcome: rdzv.Outcome{Ending: rdzv.EndClosed}}
	for _, tt := range []struct {
		name          string
		first, second error
		want          string
	}{
		{name: "the second one learns of the end", second: ended},
		{name: "the second one closes the run", first: elastic.ErrNotJoined},
		{
			name: "none has joined", first: elastic.ErrNotJoined, second: elastic.ErrNotJoined,
			want: "no launcher here had joined the run: those of this machine end (pid 1,2), those of others go on",
		},
		{
			name: "one may close it", first: errors.New("no answer"), second: elastic.ErrNotJoined,
			want: "the launcher, pid 1: no answer; SIGTERM to it ends its workers",
		},
	} {
		replies[1], replies[2] = tt.first, tt.second
		clear(asked)
		err := stopLocal(t.Context(), LocalJob{launchers: machine.List(false)}, "me")
		if (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want || asked[1] != 1 || asked[2] != 1 {
			t.Errorf("%s: %v, asked %v", tt.name, err, asked)
		}
	}
}

// TestStopEnded checks that no advice names the pid of a launcher that has ended: it may be another process's.
func TestStopEnded(t *testing.T) {
	machine := jobs.Folders{t.TempDir()}
	entry, err := machine.Register(jobs.Launcher{RunID: "a", PID: 7})
	if err != nil {
		t.Fatal(err)
	}
	job := LocalJob{launchers: machine.List(false)}
	if err := entry.Close(); err != nil {
		t.Fatal(err)
	}
	err = stopLocal(t.Context(), job, "me")
	if err == nil || err.Error() != "the launcher, pid 7, has just ended; its last line says how" {
		t.Error(err)
	}
}

// TestStatusFromDirectory checks that stop without a run id ends only a job that was started in the same directory.
// Of several jobs, status shows the only one that was started in this directory, and says so. stop ends none.
func TestStatusFromDirectory(t *testing.T) {
	machine := jobs.Folders{t.TempDir()}
	dir, other := t.TempDir(), t.TempDir()
	for _, l := range []jobs.Launcher{{RunID: "a", Dir: dir}, {RunID: "b", Dir: other}, {RunID: "c", Dir: other}} {
		l.Script, l.PID = "train.py", 7
		tracker := serveLauncher(t, machine, l, config.Secret{}, func(context.Context, string) error {
			t.Error("a job was stopped")
			return nil
		})
		tracker.Emit(events.Event{Kind: events.KindLauncherStarted, RunID: l.RunID})
	}
	target := config.Target{Local: true}
	for _, tt := range []struct{ in, shown, note string }{
		{dir, "run id a: no round yet\n", "elasticrun: showing a (train.py, pid 7, started in " + dir + "), the only job that was " +
			"started in this directory; --rdzv-id shows another one of the 3 on this machine\n"},
		{other, "", ""},
		{t.TempDir(), "", ""},
	} {
		t.Chdir(tt.in)
		var out, notes strings.Builder
		cfg := &config.Status{Target: target}
		err := WatchJob(t.Context(), cfg, machine, "v", NewPrinter(cfg, &out, &notes))
		shown := out.String() != ""
		if !strings.HasPrefix(out.String(), tt.shown) || notes.String() != tt.note || shown != (tt.shown != "") || shown != (err == nil) {
			t.Errorf("in %s: %q, %q, %v", tt.in, out.String(), notes.String(), err)
		}
		if _, usage := errors.AsType[*config.UsageError](err); err != nil && !usage {
			t.Errorf("in %s: %v", tt.in, err)
		}
		if line, err := Stop(t.Context(), &config.Stop{Target: target}, machine, "v"); err == nil {
			t.Errorf("in %s: %s", tt.in, line)
		}
	}
}

func TestStopFromDirectory(t *testing.T) {
	machine := jobs.Folders{t.TempDir()}
	dir := t.TempDir()
	asked := 0
	count := func(context.Context, string) error { asked++; return nil }
	serveLauncher(t, machine, jobs.Launcher{RunID: "a", Script: "train.py", PID: 7, Dir: dir}, config.Secret{}, count)
	anyJob, named := &config.Stop{Target: config.Target{Local: true}}, &config.Stop{Target: config.Target{Local: true, RunID: "a"}}
	t.Chdir(t.TempDir())
	line, err := Stop(t.Context(), anyJob, machine, "v")
	want := "which job? none was started in this directory; to stop a (train.py, pid 7, started in " + dir +
		") write elasticrun stop --rdzv-id=a"
	if _, usage := errors.AsType[*config.UsageError](err); !usage || err.Error() != want || asked != 0 {
		t.Errorf("elsewhere: %q, %v, asked %d times", line, err, asked)
	}
	want = `closed run id "a" (train.py, pid 7, started in ` + dir + ")"
	if line, err = Stop(t.Context(), named, machine, "v"); line != want || err != nil {
		t.Errorf("elsewhere, with its run id: %q, %v", line, err)
	}
	t.Chdir(dir)
	if line, err = Stop(t.Context(), anyJob, machine, "v"); line != want || err != nil {
		t.Errorf("there: %q, %v", line, err)
	}
}

// TestStopUnconfirmed checks the error for a launcher that has not closed its run.
func TestStopUnconfirmed(t *testing.T) {
	machine := jobs.Folders{t.TempDir()}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := func(asked context.Context, _ string) error {
		cancel(errors.New("no result within 15s"))
		<-asked.Done()
		return context.Cause(asked)
	}
	serveLauncher(t, machine, jobs.Launcher{RunID: "a", PID: 7}, config.Secret{}, stop)
	err := stopLocal(ctx, LocalJob{launchers: machine.List(false)}, "me")
	const want = "the launcher, pid 7: it does not reply: no result within 15s, but may still close the run; " +
		"SIGTERM to it ends its workers"
	if err == nil || err.Error() != want {
		t.Error(err)
	}
}
