package stacks

import (
	"bufio"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// at returns a worker whose main thread is in the function, called by main.
func at(rank int, function string) Worker {
	return Worker{
		Rank: rank, Host: "node1", PID: 100 + rank, State: "sleeping", Wait: "futex_wait",
		Threads: []Thread{{ID: 100 + rank, Frames: []Frame{{"train.py", 7, function}, {"train.py", 9, "main"}}}},
	}
}

func TestMerge(t *testing.T) {
	lost := Worker{Rank: 9, Host: "node2", PID: 109, State: "disk sleep", Problem: "it is not Python"}
	alone := lost
	alone.Rank, alone.State = 5, "running"
	workers := []Worker{lost, at(4, "wait"), at(1, "wait"), at(3, "save"), at(0, "wait"), at(2, "wait"), alone, at(6, "wait")}
	const want = `5 ranks, 0-2, 4, 6: sleeping in futex_wait
    wait (train.py:7)
    main (train.py:9)

rank 3 on node1 (pid 103): sleeping in futex_wait
    save (train.py:7)
    main (train.py:9)

rank 5 on node2 (pid 109): running
    no Python stack: it is not Python

rank 9 on node2 (pid 109): disk sleep
    no Python stack: it is not Python
`
	if diff := cmp.Diff(want, Text(Merge(workers, false), false)); diff != "" {
		t.Error(diff)
	}
}

func TestMergeAllThreads(t *testing.T) {
	one, other := at(0, "wait"), at(1, "wait")
	loader := Thread{ID: 7, Name: "loader\x1b[2J", Frames: []Frame{{"data.py", 3, "re\nad"}}}
	other.Threads = append(other.Threads, loader)
	if groups := Merge([]Worker{one, other}, false); len(groups) != 1 {
		t.Errorf("by main threads: %d groups", len(groups))
	}
	const want = `rank 0 on node1 (pid 100): sleeping in futex_wait
    wait (train.py:7)
    main (train.py:9)

rank 1 on node1 (pid 101): sleeping in futex_wait
    wait (train.py:7)
    main (train.py:9)
  thread 7, loader\x1b[2J
    re; ad (data.py:3)
`
	if diff := cmp.Diff(want, Text(Merge([]Worker{one, other}, true), true)); diff != "" {
		t.Error(diff)
	}
}

func TestDeepStack(t *testing.T) {
	w := at(0, "recurse")
	for range 60 {
		w.Threads[0].Frames = append(w.Threads[0].Frames, Frame{"deep.py", 1, "recurse"})
	}
	text := Text(Merge([]Worker{w}, false), false)
	if !strings.Contains(text, "\n    ... 12 more calls ...\n") || strings.Count(text, "\n") != 1+maxInner+1+maxOuter {
		t.Errorf("text:\n%s", text)
	}
}

// TestMergeLosesNobody checks that each worker is in one group of equal ones, and that no two groups are equal.
func TestMergeLosesNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		functions := rapid.SliceOf(rapid.SampledFrom([]string{"wait", "save", "load"})).Draw(t, "functions")
		var workers []Worker
		for rank, f := range functions {
			workers = append(workers, at(rank, f))
		}
		seen, last := map[int]bool{}, len(workers)
		groups := Merge(workers, rapid.Bool().Draw(t, "all threads"))
		firsts := map[string]bool{}
		for _, g := range groups {
			function := g.Workers[0].Frames()[0].Function
			if len(g.Workers) > last || firsts[function] {
				t.Fatalf("groups %+v", groups)
			}
			last, firsts[function] = len(g.Workers), true
			for _, w := range g.Workers {
				if seen[w.Rank] || w.Frames()[0].Function != function {
					t.Fatalf("groups %+v", groups)
				}
				seen[w.Rank] = true
			}
		}
		if len(seen) != len(workers) {
			t.Fatalf("%d of %d workers", len(seen), len(workers))
		}
	})
}

// start starts a program that prints a line when it is ready.
func start(t *testing.T, command ...string) int {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out := testenv.StartWithOutput(t, cmd)
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with what it has started
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%s printed %q, %v", command[0], line, err)
	}
	return cmd.Process.Pid
}

const program = `
import signal
def wait():
    print("ready", flush=True)
    signal.pause()
wait()
`

func TestRead(t *testing.T) {
	python := testenv.Python(t)
	for name, command := range map[string][]string{
		"python":         {python, "-c", program},
		"below a shell":  {"sh", "-c", `"$0" -c "$1"; true`, python, program},
		"not Python":     {"sh", "-c", "echo ready; while :; do sleep 100; done"},
		"of all threads": {python, "-c", program},
	} {
		t.Run(name, func(t *testing.T) {
			pid := start(t, command...)
			got := Read(Worker{Rank: 3, PID: pid}, name == "of all threads")
			if name == "not Python" {
				if got.Problem != "it is not Python" || got.State == "" || got.PythonPID != 0 {
					t.Errorf("%+v", got)
				}
				return
			}
			testenv.Await(t, "the frames", 10e9, func() bool { // the program is on its way from print to pause
				got = Read(Worker{Rank: 3, PID: pid}, false)
				return len(got.Frames()) == 2 && got.Frames()[0].Line == 5
			})
			want := []Frame{{"<string>", 5, "wait"}, {"<string>", 6, "<module>"}}
			if diff := cmp.Diff(want, got.Frames()); diff != "" || got.Problem != "" || got.Python == "" {
				t.Errorf("%+v\n%s", got, diff)
			}
			if (got.PythonPID != pid) != (name == "below a shell") {
				t.Errorf("pid %d, Python is %d", pid, got.PythonPID)
			}
		})
	}
	if got := Read(Worker{PID: 1 << 30}, false); got.Problem != "the process has ended" {
		t.Errorf("no process: %+v", got)
	}
}

// A process whose main thread has ended goes on while other threads run.
func TestMainThreadEnded(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems do not show the state")
	}
	python := testenv.Python(t)
	exit := 60 // the system call of that name
	if runtime.GOARCH != "amd64" {
		exit = 93
	}
	pid := start(t, python, "-c", fmt.Sprintf(`
import ctypes, threading, time
def work():
    while open("/proc/self/stat").read().split(") ")[1][0] != "Z":
        time.sleep(0.01)
    print("ready", flush=True)
    time.sleep(1000)
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(%d, 0)`, exit))
	w := Read(Worker{PID: pid}, true)
	if w.Ended() || w.Problem == "" || w.State != "sleeping" && w.State != "running" {
		t.Errorf("read %+v", w)
	}
}
