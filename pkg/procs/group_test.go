package procs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// shell is a worker that runs a shell script; its output goes to a file.
func shell(t *testing.T, localRank int, script string) Spec {
	t.Helper()
	return Spec{
		LocalRank: localRank,
		Argv:      []string{"sh", "-c", script},
		Env:       os.Environ(),
		Stdout:    workerlog.Output{File: filepath.Join(t.TempDir(), "stdout")},
	}
}

// startGroup starts workers whose environment carries a mark, and checks at the end of the test that none of their
// processes is left.
func startGroup(t *testing.T, specs ...Spec) *Group {
	t.Helper()
	mark := testenv.Mark()
	for i := range specs {
		specs[i].Env = append(specs[i].Env, mark)
	}
	s, err := NewSupervisor(Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.Start(specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		testenv.NothingLeft(t, mark)
	})
	return g
}

// stopGroup stops g and waits for its output.
func stopGroup(t *testing.T, g *Group, policy StopPolicy) {
	t.Helper()
	if err := g.Stop(policy); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := g.Drain(ctx); err != nil {
		t.Error(err)
	}
}

// awaitLine blocks until the worker's stdout file holds a whole line, which says that the worker is ready.
func awaitLine(t *testing.T, s Spec) string {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	timeout := time.After(time.Minute)
	for {
		if data, _ := os.ReadFile(s.Stdout.File); strings.Contains(string(data), "\n") {
			return strings.TrimSpace(string(data))
		}
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatal("the worker did not get ready")
		}
	}
}

var orderly = StopPolicy{Signal: syscall.SIGTERM, Grace: 10 * time.Second, Leftovers: 2 * time.Second}

func TestExits(t *testing.T) {
	notExecutable := filepath.Join(t.TempDir(), "plain")
	noFormat := filepath.Join(t.TempDir(), "garbage")
	for path, mode := range map[string]os.FileMode{notExecutable: 0o644, noFormat: 0o755} {
		if err := os.WriteFile(path, []byte("\x00\x01garbage"), mode); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name         string
		argv         []string
		code         int
		signal       syscall.Signal
		python, sh   int
		cannotStart  bool
		notFound     bool
		inWords      string
		wantsSuccess bool
	}{
		{name: "success", argv: []string{"true"}, wantsSuccess: true, inWords: "exited with code 0"},
		{name: "code", argv: []string{"sh", "-c", "exit 7"}, code: 7, python: 7, sh: 7, inWords: "exited with code 7"},
		{
			name:    "signal",
			argv:    []string{"sh", "-c", "kill -SEGV $$"},
			signal:  syscall.SIGSEGV,
			python:  -11,
			sh:      139,
			inWords: "killed by signal 11 (SIGSEGV)",
		},
		{name: "not found on PATH", argv: []string{"no-such-program"}, code: 127, python: 127, sh: 127, cannotStart: true},
		{
			name:        "no such file",
			argv:        []string{"/no/such/program"},
			code:        127,
			python:      127,
			sh:          127,
			cannotStart: true,
			notFound:    true,
		},
		{name: "not executable", argv: []string{notExecutable}, code: 126, python: 126, sh: 126, cannotStart: true},
		{name: "wrong format", argv: []string{noFormat}, code: 126, python: 126, sh: 126, cannotStart: true},
		{name: "a folder", argv: []string{t.TempDir()}, code: 126, python: 126, sh: 126, cannotStart: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := startGroup(t, Spec{LocalRank: 3, Argv: tt.argv, Env: os.Environ()})
			e := <-g.Exits()
			stopGroup(t, g, orderly)
			if e.Code != tt.code || e.Signal != tt.signal || e.LocalRank != 3 || e.Stopped {
				t.Errorf("exit %+v", e)
			}
			if e.PythonCode() != tt.python || e.ShellCode() != tt.sh || e.Success() != tt.wantsSuccess {
				t.Errorf("python %d, shell %d, success %v", e.PythonCode(), e.ShellCode(), e.Success())
			}
			if (e.StartErr != nil) != tt.cannotStart || tt.notFound && !errors.Is(e.StartErr, fs.ErrNotExist) {
				t.Errorf("StartErr = %v", e.StartErr)
			}
			if e.Unexecutable() != tt.cannotStart {
				t.Errorf("Unexecutable() = %v for %v", e.Unexecutable(), e.StartErr)
			}
			if (e.PID == 0) != tt.cannotStart {
				t.Errorf("pid %d", e.PID)
			}
			if tt.inWords != "" && e.String() != tt.inWords {
				t.Errorf("String = %q", e)
			}
			if tt.cannotStart && !strings.Contains(e.String(), tt.argv[0]) {
				t.Errorf("String = %q does not name the program", e)
			}
		})
	}
}

// A temporary reason does not make a worker unexecutable.
func TestUnexecutable(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, syscall.EAGAIN: false, syscall.ENOMEM: false, syscall.ETXTBSY: false, syscall.EIO: false,
		syscall.ESTALE: false, syscall.EMFILE: false,
		syscall.ECHILD: false, syscall.ENOENT: true, syscall.EACCES: true, syscall.EPERM: true,
		syscall.ENOEXEC: true, syscall.ENOTDIR: true,
	} {
		e := Exit{Code: 1}
		if err != nil {
			e.StartErr = fmt.Errorf("execute x: %w", err)
		}
		if got := e.Unexecutable(); got != want {
			t.Errorf("%v: got %v, want %v", err, got, want)
		}
	}
}

// A worker that cannot be executed fails the group. The workers before it were started and are stopped; those after
// it were not started.
func TestStartStopsAtFirstFailure(t *testing.T) {
	bad := Spec{LocalRank: 1, Argv: []string{"/no/such/program"}}
	g := startGroup(t, shell(t, 0, "exec sleep 100"), bad, shell(t, 2, "exec sleep 100"))
	if e := <-g.Exits(); e.LocalRank != 1 || e.StartErr == nil {
		t.Errorf("first exit %+v", e)
	}
	if pids := g.PIDs(); len(pids) != 1 || pids[0] == 0 {
		t.Errorf("started %v, want local rank 0 only", pids)
	}
	stopGroup(t, g, orderly)
	if e := <-g.Exits(); e.LocalRank != 0 || !e.Stopped || e.Signal != syscall.SIGTERM {
		t.Errorf("second exit %+v", e)
	}
}

func TestStop(t *testing.T) {
	// A worker that obeys dies within the grace period, also on a busy machine.
	short := StopPolicy{Signal: syscall.SIGTERM, Grace: 2 * time.Second, Leftovers: 200 * time.Millisecond}
	tests := []struct {
		name       string
		script     string // prints a line when it is ready
		stopPolicy StopPolicy
		signal     syscall.Signal
		code       int
		exits      bool // by itself, before the stop
	}{
		{name: "obeys", script: "echo; exec sleep 100", stopPolicy: orderly, signal: syscall.SIGTERM},
		{
			name:       "gets the launcher's signal",
			script:     "trap 'exit 9' INT; echo; while :; do sleep 0.01; done",
			stopPolicy: StopPolicy{Signal: syscall.SIGINT, Grace: 10 * time.Second, Leftovers: time.Second},
			code:       9,
		},
		{
			name:       "has time to clean up",
			script:     "trap 'sleep 0.2; exit 4' TERM; echo; while :; do sleep 0.01; done",
			stopPolicy: orderly,
			code:       4,
		},
		{
			name:       "ignores the signal",
			script:     "trap '' TERM; echo; while :; do sleep 0.01; done",
			stopPolicy: short,
			signal:     syscall.SIGKILL,
		},
		{name: "is stopped", script: "echo; kill -STOP $$; sleep 100", stopPolicy: orderly, signal: syscall.SIGTERM},
		{
			name:       "has children of its session",
			script:     "sleep 100 & sleep 100 & echo; wait",
			stopPolicy: orderly,
			signal:     syscall.SIGTERM,
		},
		{
			name:       "has stubborn children",
			script:     "(trap '' TERM; sleep 100 & echo; wait) & wait",
			stopPolicy: short,
			signal:     syscall.SIGTERM,
		},
		{
			name:       "has children in sessions of their own",
			script:     "setsid sleep 100 & setsid sh -c 'trap \"\" TERM; sleep 100' & echo; wait",
			stopPolicy: short,
			signal:     syscall.SIGTERM,
		},
		{
			name:       "has daemons",
			script:     "(setsid sh -c 'sleep 100 & sleep 100 &' &); echo; exec sleep 100",
			stopPolicy: orderly,
			signal:     syscall.SIGTERM,
		},
		{name: "has left already", script: "setsid sleep 100 & echo; exit 3", stopPolicy: orderly, code: 3, exits: true},
		{
			name:       "no grace at all",
			script:     "trap '' TERM; setsid sleep 100 & echo; while :; do sleep 0.01; done",
			stopPolicy: StopPolicy{Signal: syscall.SIGKILL},
			signal:     syscall.SIGKILL,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec := shell(t, 0, tt.script)
			g := startGroup(t, spec)
			awaitLine(t, spec)
			var e Exit
			if tt.exits {
				e = <-g.Exits()
			}
			start := time.Now()
			stopGroup(t, g, tt.stopPolicy)
			if took, most := time.Since(start), tt.stopPolicy.Grace+tt.stopPolicy.Leftovers+8*time.Second; took > most {
				t.Errorf("took %v, want at most %v", took, most)
			}
			if !tt.exits {
				e = <-g.Exits()
			}
			if e.Signal != tt.signal || e.Code != tt.code || e.Stopped == tt.exits {
				t.Errorf("exit %+v", e)
			}
		})
	}
}

func TestKillNowEndsTheGrace(t *testing.T) {
	spec := shell(t, 0, "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 100' & echo; while :; do sleep 0.01; done")
	g := startGroup(t, spec)
	awaitLine(t, spec)
	killNow := make(chan struct{})
	close(killNow)
	start := time.Now()
	stopGroup(t, g, StopPolicy{Signal: syscall.SIGTERM, Grace: time.Minute, Leftovers: time.Minute, KillNow: killNow})
	if took := time.Since(start); took > 40*time.Second {
		t.Errorf("took %v", took)
	}
}

// With Options.Track, ProcessTree lists the processes that a stop ended: workers that had exited, their children, and
// their daemons.
func TestProcessTree(t *testing.T) {
	spec := shell(
		t,
		0,
		`sleep 1000 & a=$!; (setsid sh -c 'sleep 1000 & echo $$ $! >pids; sleep 1000' &) ; while [ ! -s pids ]; do :; done; echo $a $(cat pids)`,
	)
	t.Chdir(t.TempDir())
	gone := shell(t, 1, "exit 3")
	for _, track := range []bool{true, false} {
		s, err := NewSupervisor(Options{Track: track})
		if err != nil {
			t.Fatal(err)
		}
		g, err := s.Start([]Spec{spec, gone}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var want []int
		for f := range strings.FieldsSeq(awaitLine(t, spec)) {
			pid, _ := strconv.Atoi(f)
			want = append(want, pid)
		}
		<-g.Exits()
		<-g.Exits()
		stopGroup(t, g, orderly)
		tree := g.ProcessTree()
		for rank, pid := range g.PIDs() {
			if !tree[pid] {
				t.Errorf("worker %d is not among %v", rank, tree)
			}
		}
		for _, pid := range want {
			if tree[pid] != track {
				t.Errorf("pid %d of %v is among %v: %v, tracking: %v", pid, want, tree, tree[pid], track)
			}
		}
		if err := errors.Join(s.Close(), os.Remove(spec.Stdout.File), os.Remove("pids")); err != nil {
			t.Error(err)
		}
	}
}

// Stop signals only processes of the job. It spares a child that other code of this process started, even while it
// searches for leftovers.
func TestStopSparesOthers(t *testing.T) {
	other := exec.Command("sleep", "100")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("another child of this process is gone: %v", err)
		}
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	spec := shell(t, 0, "setsid sleep 100 & echo; sleep 100")
	g := startGroup(t, spec)
	awaitLine(t, spec)
	stopGroup(t, g, StopPolicy{Signal: syscall.SIGTERM, Grace: 5 * time.Second, Leftovers: 300 * time.Millisecond})
}

// A worker that exited before the stop is a cause; a worker that was running is a victim.
func TestVictims(t *testing.T) {
	for range testenv.Repeat(t, 20, 500) {
		g := startGroup(t, shell(t, 0, "exit 1"), shell(t, 1, "exec sleep 100"))
		first := <-g.Exits()
		stopGroup(t, g, orderly)
		second := <-g.Exits()
		if first.LocalRank != 0 || first.Stopped || second.LocalRank != 1 || !second.Stopped {
			t.Fatalf("exits %+v, %+v", first, second)
		}
		if first.At.After(second.At) {
			t.Errorf("times %v, %v", first.At, second.At)
		}
	}
}

func TestOneGroupAtATime(t *testing.T) {
	s, err := NewSupervisor(Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.Start([]Spec{shell(t, 0, "exec sleep 100")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(nil, nil); err == nil {
		t.Error("a second group was started beside the first")
	}
	if err := s.Close(); err == nil {
		t.Error("closed while a group is live")
	}
	stopGroup(t, g, orderly)
	g, err = s.Start([]Spec{shell(t, 0, "true")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	stopGroup(t, g, orderly)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A start may be canceled halfway: the remaining workers are not started, and the group can be stopped like any other.
func TestCanceledStart(t *testing.T) {
	over := make(chan struct{})
	close(over)
	for _, tt := range []struct {
		name    string
		over    chan struct{}
		late    func() bool
		script  string
		started int
	}{
		{name: "over before", over: over, script: "exec sleep 100"},
		{name: "late after the first", late: afterTheFirst(), script: "exec sleep 100", started: 1},
		{name: "late after the first, which ends", late: afterTheFirst(), script: "true", started: 1},
		{
			name: "neither", over: make(chan struct{}), late: func() bool { return false }, script: "exec sleep 100",
			started: 3,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := NewSupervisor(Options{Expired: tt.late})
			if err != nil {
				t.Fatal(err)
			}
			g, err := s.Start([]Spec{shell(t, 0, tt.script), shell(t, 1, tt.script), shell(t, 2, tt.script)}, tt.over)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(g.PIDs()); got != tt.started {
				t.Errorf("%d workers were started, want %d", got, tt.started)
			}
			if tt.script == "true" {
				x := <-g.exits
				g.exits <- x
			}
			if g.HaveExited() {
				t.Error("all workers count as exited, but some never started")
			}
			stopGroup(t, g, orderly)
			if got := len(g.Exits()); got != tt.started {
				t.Errorf("%d exits, want %d", got, tt.started)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// afterTheFirst returns a function that returns true from its second call on.
func afterTheFirst() func() bool {
	asked := 0
	return func() bool { asked++; return asked > 1 }
}

func TestStartWithoutALogFolder(t *testing.T) {
	s, err := NewSupervisor(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	bad := shell(t, 1, "true")
	bad.Stdout.File = "/no/such/folder/stdout"
	if _, err := s.Start([]Spec{shell(t, 0, "true"), bad}, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func TestWorkerSurroundings(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	spec := shell(t, 0, `echo "$PWD $(ps -o sid= -p $$ | tr -d ' ') $$ $ONLY $(ulimit -n) $(readlink /dev/fd/0)"`)
	spec.Env = []string{"PATH=" + os.Getenv("PATH"), "ONLY=this"}
	g := startGroup(t, spec)
	<-g.Exits()
	stopGroup(t, g, orderly)
	pid := strconv.Itoa(g.PIDs()[0])
	own := exec.Command("sh", "-c", `echo "$(ulimit -n) $(readlink /dev/fd/0)"`)
	own.Stdin = os.Stdin
	limit, err := own.Output() // os/exec gives the limit of before the Go runtime raised it
	if err != nil {
		t.Fatal(err)
	}
	want := []string{dir, pid, pid, "this", strings.TrimSpace(string(limit))}
	if diff := cmp.Diff(strings.Join(want, " "), strings.TrimSpace(awaitLine(t, spec))); diff != "" {
		t.Errorf("dir, session, pid, environment, nofile, stdin (-want +got):\n%s", diff)
	}
}

func TestTailOfStderr(t *testing.T) {
	g := startGroup(t, shell(t, 0, "echo one >&2; echo two >&2; exit 1"), shell(t, 1, "echo other >&2"))
	<-g.Exits()
	<-g.Exits()
	stopGroup(t, g, orderly)
	if got := strings.Join(g.Tail(0), "|"); got != "one|two" {
		t.Errorf("tail of 0: %q", got)
	}
	if got := g.Tail(7); got != nil {
		t.Errorf("tail of nobody: %q", got)
	}
}

func TestSignalReachesWorkersOnly(t *testing.T) {
	spec := shell(
		t,
		0,
		`trap 'echo got; exit 0' USR1; (trap 'exit 9' USR1; while :; do sleep 0.01; done) & echo; while :; do sleep 0.01; done`,
	)
	g := startGroup(t, spec)
	awaitLine(t, spec)
	g.Signal(syscall.SIGUSR1)
	if e := <-g.Exits(); !e.Success() {
		t.Errorf("exit %+v", e)
	}
	stopGroup(t, g, orderly)
}

func TestWorkersAreBoundToCPUs(t *testing.T) {
	if runtime.NumCPU() < 2 {
		testenv.Missing(t, "needs two CPUs")
	}
	specs := []Spec{
		shell(t, 0, "grep Cpus_allowed_list /proc/self/status"),
		shell(t, 1, "grep Cpus_allowed_list /proc/self/status"),
	}
	specs[0].CPUs = []int{1}
	g := startGroup(t, specs...)
	for range specs {
		<-g.Exits()
	}
	stopGroup(t, g, orderly)
	if got := awaitLine(t, specs[0]); !strings.HasSuffix(got, "\t1") {
		t.Errorf("bound worker: %q", got)
	}
	if got := awaitLine(t, specs[1]); strings.HasSuffix(got, "\t1") {
		t.Errorf("the next worker is bound too: %q", got)
	}
}

// A process outside the job that opened a worker's stdout does not keep the job from ending, and no output is lost.
func TestOutputHeldOpenByAnother(t *testing.T) {
	spec := shell(t, 0, "echo before; sleep 100")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	console := workerlog.NewConsole(w, w)
	s, err := NewSupervisor(Options{Console: console, OutputTimeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	spec.Stdout.Console = true
	g, err := s.Start([]Spec{spec}, nil)
	if err != nil {
		t.Fatal(err)
	}
	awaitLine(t, spec)
	held, err := os.OpenFile("/proc/"+strconv.Itoa(g.PIDs()[0])+"/fd/1", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	if err := g.Stop(orderly); err != nil {
		t.Fatal(err)
	}
	if err := g.Drain(t.Context()); err == nil || !strings.Contains(err.Error(), "still has it open") {
		t.Errorf("Drain: %v", err)
	}
	if err := errors.Join(s.Close(), console.Close(), w.Close()); err != nil {
		t.Error(err)
	}
	if shown, err := io.ReadAll(r); string(shown) != "before\n" || err != nil {
		t.Errorf("shown %q, %v", shown, err)
	}
}
