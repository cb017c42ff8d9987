package agent

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
)

// fakeWatcher reports files when the test tells it to.
type fakeWatcher struct {
	err     error
	asked   int
	paths   []string
	written chan string
	open    atomic.Int32 // watches, which are closed beside what the agent does
}

func (w *fakeWatcher) Watch(paths []string) (FileWatch, error) {
	if w.asked++; w.err != nil {
		return nil, w.err
	}
	w.paths, w.written = paths, make(chan string, len(paths))
	w.open.Add(1)
	return w, nil
}

func (w *fakeWatcher) Written() <-chan string { return w.written }
func (w *fakeWatcher) Close()                 { w.open.Add(-1) }

// await returns when running workers have been watched for a while.
func (w *fakeWatcher) await() { <-time.After(2 * watchDelay) }

// write writes the error file of a worker, and reports it.
func (w *fakeWatcher) write(t *testing.T, rank int, text string) {
	t.Helper()
	synctest.Wait() // for the watch
	if err := os.WriteFile(w.paths[rank], []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(w.paths[rank], time.Now(), time.Now()); err != nil { // by the bubble's clock
		t.Fatal(err)
	}
	w.written <- w.paths[rank]
}

const boom = `{"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": "Traceback\nValueError: boom\n", "timestamp": "946684810"}}}`

// newHangHarness returns an agent that gives workers a minute to end after they have written their error file.
func newHangHarness(t *testing.T, w *fakeWatcher, script ...func(*fakeGroup)) *harness {
	t.Helper()
	b := newHarness(t, WorkerSpec{}, script...)
	b.agent.opts.ErrorExitTimeout, b.agent.opts.ErrorFiles = time.Minute, w
	return b
}

// A worker that has written its error file and does not end is the root cause, with exit code 1. Its exit code after
// the stop does not count.
func TestStuckWorker(t *testing.T) {
	for _, tt := range []struct{ name, text, problem, summary string }{
		{"a whole file", boom, "", "ValueError: boom"},
		{"half of one", boom[:20], "parse error file", "had written its error file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w fakeWatcher
				b := newHangHarness(t, &w, runsOn)
				wait := b.start(t.Context())
				begun := time.Now()
				b.group().onStop = func(g *fakeGroup, _ procs.StopPolicy) {
					g.exit(procs.Exit{LocalRank: 1, Signal: syscall.SIGKILL, Stopped: true})
				}
				<-time.After(10 * time.Second)
				w.write(t, 1, tt.text)
				r, err := wait()
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); took != 70*time.Second+duplicateSignalWait && took != 70*time.Second {
					t.Errorf("took %v", took)
				}
				root, ok := r.RootCause()
				if !ok || root.GlobalRank != 1 || root.ShellCode() != 1 || root.Signal != 0 || root.PID != 101 || !hung(root) {
					t.Errorf("root cause %+v", root)
				}
				if len(r.Failures) != 1 || !strings.Contains(root.ErrorFileProblem, tt.problem) ||
					!strings.Contains(root.Summary, tt.summary) {
					t.Errorf("failures %+v, summary %q", r.Failures, root.Summary)
				}
				if !slices.ContainsFunc(root.Findings, func(f failure.Finding) bool { return f.Kind == failure.Stuck }) {
					t.Errorf("findings %v", root.Findings)
				}
				if w.open.Load() != 0 {
					t.Errorf("%d watches are left", w.open.Load())
				}
			})
		})
	}
}

// A worker that ends in time is judged by its exit alone.
func TestNotStuck(t *testing.T) {
	for _, tt := range []struct {
		name string
		exit procs.Exit
		want WorkerState
	}{
		{"succeeds after all", procs.Exit{}, Succeeded},
		{"fails in time", procs.Exit{Code: 7}, Failed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w fakeWatcher
				b := newHangHarness(t, &w, runsOn)
				wait := b.start(t.Context())
				w.await()
				w.write(t, 0, boom)
				synctest.Wait()
				<-time.After(59 * time.Second)
				tt.exit.LocalRank = 0
				b.group().exit(tt.exit)
				synctest.Wait()
				w.write(t, 0, boom) // news that come late
				synctest.Wait()
				<-time.After(5 * time.Minute)
				if tt.want == Succeeded {
					b.group().exit(procs.Exit{LocalRank: 1})
				}
				r, err := wait()
				if err != nil || r.State != tt.want {
					t.Fatalf("%+v, %v", r, err)
				}
				if root, ok := r.RootCause(); ok && (root.ExitCode != 7 || hung(root)) {
					t.Errorf("root cause %+v", root)
				}
			})
		})
	}
}

// Two deadlines run at the same time. The exit of a worker cancels only its own.
func TestStuckSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w fakeWatcher
		b := newHangHarness(t, &w, runsOn)
		wait := b.start(t.Context())
		w.await()
		begun := time.Now()
		w.write(t, 0, boom)
		synctest.Wait()
		<-time.After(30 * time.Second)
		w.write(t, 1, boom)
		synctest.Wait()
		b.group().exit(procs.Exit{LocalRank: 0})
		r, err := wait()
		root, _ := r.RootCause()
		if err != nil || root.GlobalRank != 1 || time.Since(begun) < 90*time.Second {
			t.Errorf("%+v after %v, %v", root, time.Since(begun), err)
		}
	})
}

// Without a watch, because the kernel refuses it or the user disabled it, the job goes on.
func TestStuckUnwatched(t *testing.T) {
	for _, tt := range []struct {
		name    string
		timeout time.Duration
		runs    time.Duration
		err     error
		asked   int
	}{
		{"refused", time.Minute, 2 * watchDelay, errors.New("no inotify watches left"), 1},
		{"not wanted", 0, 2 * watchDelay, nil, 0},
		{"over before it began", time.Minute, watchDelay / 2, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := fakeWatcher{err: tt.err}
				b := newHangHarness(t, &w, runsOn)
				b.agent.opts.ErrorExitTimeout = tt.timeout
				wait := b.start(t.Context())
				g := b.group()
				<-time.After(tt.runs)
				for rank := range 2 {
					g.exit(procs.Exit{LocalRank: rank})
				}
				if r, err := wait(); err != nil || r.State != Succeeded || w.asked != tt.asked || w.paths != nil {
					t.Errorf("%+v, %v, watched %q, asked %d times", r, err, w.paths, w.asked)
				}
			})
		})
	}
}

func hung(f failure.Failure) bool {
	return slices.ContainsFunc(f.Findings, func(x failure.Finding) bool { return x.Kind == failure.Stuck })
}
