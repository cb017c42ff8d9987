package pystack

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestThreads compares with what Python says of its own threads: locks, generators, coroutines, recursion, names that
// are not ASCII.
func TestThreads(t *testing.T) {
	for _, interpreter := range interpreters() {
		t.Run(interpreter.name, func(t *testing.T) {
			python := interpreter.find(t)
			script, err := filepath.Abs("testdata/hang.py")
			if err != nil {
				t.Fatal(err)
			}
			run := start(t, nil, python, script)
			var want []Thread
			if err := json.Unmarshal([]byte(run.line()), &want); err != nil {
				t.Fatal(err)
			}
			p := mustOpen(t, run.pid)
			t.Logf("python %v", p.Version())
			for range 3 { // the later ones use what the first one kept
				got := mustThreads(t, p)
				main := got[0]
				if diff := cmp.Diff(want, got[1:], cmpopts.SortSlices(func(a, b Thread) bool { return a.ID < b.ID })); diff != "" {
					t.Errorf("threads (-want +got):\n%s", diff)
				}
				wantMain := Thread{ID: run.pid, Name: "main (1) x", Main: true, Frames: []Frame{
					{File: script, Line: lineOf(t, script, "    print(text"), Function: "main"},
					{File: script, Line: lineOf(t, script, "main()"), Function: "<module>"},
				}}
				if diff := cmp.Diff(wantMain, main); diff != "" {
					t.Errorf("main thread (-want +got):\n%s", diff)
				}
				alone, err := p.MainThread()
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(main, alone); diff != "" {
					t.Errorf("the main thread alone (-all threads, +alone):\n%s", diff)
				}
			}
		})
	}
}

// lineOf returns the number of the line of a file that begins with start.
func lineOf(t *testing.T, file, start string) int {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(strings.Split(string(data), "\n"), func(l string) bool { return strings.HasPrefix(l, start) })
	if at < 0 {
		t.Fatalf("%s has no line that begins with %q", file, start)
	}
	return at + 1
}

// TestSubinterpreter has a thread that runs code in two interpreters, and another thread.
func TestSubinterpreter(t *testing.T) {
	for _, interpreter := range interpreters() {
		t.Run(interpreter.name, func(t *testing.T) {
			python := interpreter.find(t)
			run := start(t, nil, python, "-c", `
import sys, threading
try:
    import _interpreters as sub
except ImportError:
    import _xxsubinterpreters as sub
started = threading.Event()
def other():
    started.set(), threading.Event().wait()
threading.Thread(target=other, daemon=True).start()
started.wait()
def enter():
    code = "import sys\ndef inside():\n  print('ready', flush=True), sys.stdin.read()\ninside()"
    run = getattr(sub, "exec", None) or sub.run_string
    run(sub.create(), code)
enter()
`)
			run.line()
			p := mustOpen(t, run.pid)
			threads := mustThreads(t, p)
			if len(threads) != 3 {
				t.Fatalf("got %d threads, want 3: %+v", len(threads), threads)
			}
			for i, want := range [][]string{{"enter", "<module>"}, {"inside", "<module>"}} {
				th := threads[i]
				if th.ID != run.pid || !th.Main || th.Interpreter == 0 != (i == 0) || !slices.Equal(functions(th), want) {
					t.Errorf("thread %d is %+v, want %v", i, th, want)
				}
			}
			if th := threads[2]; th.Main || th.Interpreter != 0 {
				t.Errorf("the last thread is %+v", th)
			}
			if main, err := p.MainThread(); err != nil || main.Interpreter != 0 {
				t.Errorf("the main thread is %+v: %v", main, err)
			}
		})
	}
}

// TestManyThreads has more threads than fit in a page.
func TestManyThreads(t *testing.T) {
	const count = 300
	run := start(t, nil, python(t), "-c", fmt.Sprintf(`
import sys, threading
done, lock = threading.Barrier(%d), threading.Lock()
def work():
    done.wait()
    lock.acquire()
lock.acquire()
for _ in range(%d): threading.Thread(target=work, daemon=True).start()
done.wait()
print("ready", flush=True)
sys.stdin.read()
`, count+1, count))
	run.line()
	p := mustOpen(t, run.pid)
	testenv.Await(t, "all threads to wait", time.Minute, func() bool {
		threads := mustThreads(t, p)
		waiting := 0
		for _, th := range threads[1:] {
			if slices.Contains(functions(th), "work") {
				waiting++
			}
		}
		return len(threads) == count+1 && waiting == count
	})
}

// TestTruncated has a stack that is deeper than the package reads.
func TestTruncated(t *testing.T) {
	run := start(t, nil, python(t), "-c", `
import sys
sys.setrecursionlimit(100_000)
def f(n):
    if n: return f(n - 1)
    print("ready", flush=True)
    sys.stdin.read()
f(15_000)
`)
	run.line()
	main, err := mustOpen(t, run.pid).MainThread()
	if err != nil {
		t.Fatal(err)
	}
	if len(main.Frames) != maxFrames || !main.Truncated || main.Frames[1].Line != 5 || main.Frames[maxFrames-1].Line != 5 {
		t.Errorf("got %d frames, truncated: %v, the first are %v", len(main.Frames), main.Truncated, main.Frames[:2])
	}
}

// TestFork reads a process that a thread of another one has forked.
func TestFork(t *testing.T) {
	for _, interpreter := range interpreters() {
		t.Run(interpreter.name, func(t *testing.T) {
			python := interpreter.find(t)
			run := start(t, nil, python, "-W", "ignore", "-c", `
import os, sys, threading
def fork():
    if os.fork() == 0:
        child()
def child():
    print(os.getpid(), flush=True)
    sys.stdin.read()
    os._exit(0)
t = threading.Thread(target=fork)
t.start()
t.join()
sys.stdin.read()
os.wait()
`)
			pid, err := strconv.Atoi(run.line())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				run.end()
				_ = run.cmd.Wait() // it waits for the child, which nobody else may kill
			})
			threads := mustThreads(t, mustOpen(t, pid))
			if len(threads) != 1 || threads[0].ID != pid || !threads[0].Main || !slices.Contains(functions(threads[0]), "child") {
				t.Errorf("got %+v", threads)
			}
		})
	}
}

// TestPIDNamespace reads a process whose threads have other numbers in their own namespace.
func TestPIDNamespace(t *testing.T) {
	testenv.Root(t)
	for _, interpreter := range interpreters() {
		t.Run(interpreter.name, func(t *testing.T) {
			python := interpreter.find(t)
			run := start(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, python, "-c", `
import os, sys, threading, time
started = threading.Event()
def work():
    started.set()
    time.sleep(1000)
threading.Thread(target=work, daemon=True).start()
started.wait()
print(os.getpid(), flush=True)
sys.stdin.read()
`)
			if inner := run.line(); inner != "1" {
				t.Fatalf("the program has pid %s in its namespace", inner)
			}
			threads := mustThreads(t, mustOpen(t, run.pid))
			if len(threads) != 2 || threads[0].ID != run.pid || !threads[0].Main || threads[1].ID <= run.pid || threads[1].Main {
				t.Errorf("got %+v", threads)
			}
		})
	}
}

// TestVenv reads an interpreter that is a link.
func TestVenv(t *testing.T) {
	run := start(t, nil, testenv.Venv(t)+"/bin/python", "-c", "print('ready', flush=True); input()")
	run.line()
	main, err := mustOpen(t, run.pid).MainThread()
	if err != nil || !slices.Equal(functions(main), []string{"<module>"}) {
		t.Errorf("got %+v, %v", main, err)
	}
}
