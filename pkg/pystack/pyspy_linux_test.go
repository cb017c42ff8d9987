package pystack

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestPySpy compares the main threads of random programs with what py-spy reads, in each Python on the machine. A
// failure prints the seed of its program; ELASTICRUN_SEED runs that program alone.
func TestPySpy(t *testing.T) {
	t.Parallel()
	pyspy := testenv.PySpy(t)
	scope, _ := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope") // no file: no restriction
	if restricted := strings.TrimSpace(string(scope)); os.Getuid() != 0 && restricted != "" && restricted != "0" {
		testenv.Missing(t, "needs root, because py-spy is no parent of the process and kernel.yama.ptrace_scope is %s", restricted)
	}
	for _, interpreter := range slices.Concat(interpreters(), installed(t)) {
		if interpreter.name == "library" {
			continue // it runs one program only
		}
		t.Run(interpreter.name, func(t *testing.T) {
			t.Parallel()
			python := interpreter.find(t)
			seeds, count := []uint64{}, testenv.Repeat(t, 2, 300)
			for range count {
				seeds = append(seeds, rand.Uint64())
			}
			if text := os.Getenv("ELASTICRUN_SEED"); text != "" {
				seeds = seeds[:1]
				if _, err := fmt.Sscan(text, &seeds[0]); err != nil {
					t.Fatalf("ELASTICRUN_SEED=%q: %v", text, err)
				}
			}
			script := filepath.Join(t.TempDir(), "program.py")
			for _, seed := range seeds {
				text := randomProgram(rand.New(rand.NewPCG(seed, 0))) // #nosec G404 -- a test repeats it
				if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				comparePySpy(t, pyspy, python, script)
				if t.Failed() {
					t.Fatalf("ELASTICRUN_SEED=%d, the program:\n%s", seed, text)
				}
			}
		})
	}
}

// comparePySpy runs a program, and compares its main thread with that of py-spy once it waits.
func comparePySpy(t *testing.T, pyspy, python, script string) {
	t.Helper()
	run := start(t, nil, python, script)
	defer func() {
		_ = run.cmd.Process.Kill() // it waits forever
		_ = run.cmd.Wait()         // killed
	}()
	run.line()
	p := mustOpen(t, run.pid)
	var diff string
	// The program waits soon after its line, but nothing says when. A comparison counts if the stack was the same before
	// and after py-spy looked.
	testenv.Await(t, "the program to wait", time.Minute, func() bool {
		before := mustMain(t, p)
		theirs := framesOfPySpy(t, pyspy, p)
		diff = cmp.Diff(theirs, before.Frames)
		return cmp.Equal(before, mustMain(t, p)) && !before.Changed && (diff == "" || asleep(t, run.pid))
	})
	if diff != "" {
		t.Errorf("python %v: main thread (-py-spy +pystack):\n%s", p.Version(), diff)
	}
}

// asleep reports whether the main thread of a process sleeps in the kernel.
func asleep(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "S")
}

// mustMain reads the main thread.
func mustMain(t testing.TB, p *Process) Thread {
	t.Helper()
	main, err := p.MainThread()
	if err != nil {
		t.Fatal(err)
	}
	return main
}

// newestOfPySpy is the newest minor version of Python that this version of py-spy reads.
const newestOfPySpy = 14

// framesOfPySpy returns the frames of the main thread that py-spy reads. It skips the test if py-spy does not know that
// version of Python.
func framesOfPySpy(t *testing.T, pyspy string, p *Process) []Frame {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), pyspy, "dump", "--nonblocking", "--json", "--full-filenames",
		"--pid", fmt.Sprint(p.pid)).Output()
	if err != nil {
		if p.Version().Minor > newestOfPySpy {
			t.Skipf("py-spy does not know python %v: %v", p.Version(), err)
		}
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Logf("py-spy: %s", failed.Stderr)
		}
		t.Fatalf("py-spy dump of python %v: %v", p.Version(), err)
	}
	var threads []struct {
		Name   string `json:"thread_name"`
		Frames []struct {
			Name     string `json:"name"`
			Filename string `json:"filename"`
			Line     int    `json:"line"`
		} `json:"frames"`
	}
	if err := json.Unmarshal(out, &threads); err != nil {
		t.Fatalf("py-spy dump: %v\n%s", err, out)
	}
	var frames []Frame
	for _, thread := range threads {
		if thread.Name != "MainThread" {
			continue
		}
		for _, f := range thread.Frames {
			frames = append(frames, Frame{File: f.Filename, Line: f.Line, Function: f.Name})
		}
	}
	return frames
}

// installed returns the interpreters on this machine that interpreters lacks.
func installed(t *testing.T) []interpreter {
	t.Helper()
	var all []interpreter
	for _, path := range testenv.Pythons(t) {
		if debian, err := filepath.EvalSymlinks(systemPython); err == nil && path == debian {
			continue // it is "system"
		}
		all = append(all, interpreter{name: strings.ReplaceAll(path, "/", "_"), path: path})
	}
	return all
}
