package pystack

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// waiting is a Python program that waits for the end of its input.
const waiting = "import sys; print('ready', flush=True); sys.stdin.read()"

// TestExited reads a process that has ended: while its parent does not know, and afterwards.
func TestExited(t *testing.T) {
	run := start(t, nil, python(t), "-c", waiting)
	run.line()
	p := mustOpen(t, run.pid)
	mustThreads(t, p)
	other := *p
	other.identity.start-- // an earlier process that had this pid
	if _, err := other.Threads(); !errors.Is(err, ErrExited) {
		t.Errorf("a pid that was used again: got %v, want %v", err, ErrExited)
	}
	run.end()
	// WNOWAIT leaves the process as it is: a zombie.
	err := unix.Waitid(unix.P_PID, run.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	if err != nil {
		t.Fatal(err)
	}
	check := func(state string) {
		t.Helper()
		_, err := p.Threads()
		_, mainErr := p.MainThread()
		_, openErr := Open(run.pid)
		for _, err := range []error{err, mainErr, openErr} {
			if !errors.Is(err, ErrExited) {
				t.Errorf("%s: got %v, want %v", state, err, ErrExited)
			}
		}
	}
	check("zombie")
	if err := run.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	check("gone")
}

// TestReplaced reads a process that has called execve: with the same program, which lies at the same addresses, and
// with one that is not Python.
func TestReplaced(t *testing.T) {
	for _, tc := range []struct{ name, exec, reason string }{
		{name: "same program", exec: "sys.executable, '-c', 'print(1, flush=True), input()'"},
		{name: "another", exec: "'/bin/sh', '-c', 'echo 1; read x'", reason: "it is not Python"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// Without randomization the new program's data is where the old one's was.
			run := start(t, nil, "setarch", "-R", python(t), "-c", fmt.Sprintf(
				"import os, sys; print('ready', flush=True); sys.stdin.buffer.raw.read(1); args = [%s]; os.execv(args[0], args)", tc.exec))
			run.line()
			p := mustOpen(t, run.pid)
			mustThreads(t, p)
			run.write("x")
			run.line()
			_, err := p.Threads()
			if _, mainErr := p.MainThread(); !errors.Is(err, ErrReplaced) || !errors.Is(mainErr, ErrReplaced) {
				t.Errorf("got %v and %v, want %v", err, mainErr, ErrReplaced)
			}
			if p, err = Open(run.pid); tc.reason == "" {
				if err != nil {
					t.Fatal(err)
				}
				mustThreads(t, p)
			} else {
				wantReason(t, err, tc.reason)
			}
		})
	}
}

// wantReason checks that err is an UnsupportedError with a reason.
func wantReason(t *testing.T, err error, reason string) {
	t.Helper()
	if unsupported, ok := errors.AsType[*UnsupportedError](err); !ok || unsupported.Reason != reason {
		t.Errorf("got error %v, want the reason %q", err, reason)
	}
}

// TestNotPython opens processes that are not Python.
func TestNotPython(t *testing.T) {
	run := start(t, nil, "sh", "-c", "echo ready; read x")
	run.line()
	for _, pid := range []int{run.pid, os.Getpid()} {
		_, err := Open(pid)
		wantReason(t, err, "it is not Python")
	}
	for _, pid := range []int{-1, 0, 1 << 30} {
		if _, err := Open(pid); !errors.Is(err, ErrExited) {
			t.Errorf("Open(%d): got %v, want %v", pid, err, ErrExited)
		}
	}
	if os.Getuid() == 0 {
		if name, err := threadName(2, 2); err == nil && name == "kthreadd" {
			_, err := Open(2)
			wantReason(t, err, "it is a thread of the kernel")
		}
	}
}

// TestPermission reads processes of other users, and as a user without privileges one of its own.
func TestPermission(t *testing.T) {
	testenv.Root(t)
	const nobody, other = 65534, 12345
	// The kernel compares groups too, and AsUser changes only the user.
	as := &syscall.Credential{Uid: nobody, Gid: uint32(os.Getgid())} //nolint:gosec // a group is a number of 32 bits
	run := start(t, &syscall.SysProcAttr{Credential: as}, python(t), "-c", waiting)
	run.line()
	opened := mustOpen(t, run.pid)
	testenv.AsUser(t, other, func() {
		reason := fmt.Sprintf("no permission to read process %d", run.pid)
		_, err := Open(run.pid)
		wantReason(t, err, reason)
		if !errors.Is(err, os.ErrPermission) {
			t.Errorf("%v does not wrap the system's error", err)
		}
		_, err = opened.Threads()
		wantReason(t, err, reason)
	})
	testenv.AsUser(t, nobody, func() {
		if p, err := Open(run.pid); err != nil {
			t.Error(err)
		} else if threads, err := p.Threads(); err != nil || len(threads) != 1 {
			t.Errorf("got %v, %v", threads, err)
		}
	})
}

// TestReplacedWhileRead reads a process that runs one Python after another. Whatever it gets is an error or of one of
// them.
func TestReplacedWhileRead(t *testing.T) {
	python, library := python(t), embedded(t)
	const again = "import os, sys; a = sys.argv; os.execv(a[2], [a[2], '-c', a[1], a[1], a[3], a[2]])"
	run := start(t, nil, python, "-c", "print('ready', flush=True); "+again, again, library, python)
	run.line()
	read := 0
	counts := map[error]int{}
	end := time.Now().Add(time.Duration(testenv.Repeat(t, 1, 30)) * time.Second)
	for time.Now().Before(end) || read == 0 || counts[ErrReplaced] == 0 { // go test bounds the time of a slow machine
		p, err := Open(run.pid)
		var threads []Thread
		for err == nil {
			threads, err = p.Threads()
			for _, th := range threads {
				for _, f := range th.Frames {
					read++
					if f.File != "<string>" && !strings.HasPrefix(f.File, "<frozen ") && !strings.HasPrefix(f.File, "/usr/lib/python3") {
						t.Errorf("a frame in %q", f.File)
					}
				}
			}
		}
		known := false
		for _, want := range []error{ErrReplaced, ErrNoInterpreter, ErrUnreadable} {
			if errors.Is(err, want) {
				counts[want]++
				known = true
			}
		}
		// Between the start of a program and that of its libraries there is no Python.
		if unsupported, ok := errors.AsType[*UnsupportedError](err); !known && (!ok || unsupported.Reason != "it is not Python") {
			t.Fatal(err)
		}
	}
	t.Logf("%d frames; %v", read, counts)
}

// TestChurn reads a program that calls, returns, compiles and starts threads all the time. Each stack must be one that
// the program can have.
func TestChurn(t *testing.T) {
	for _, interpreter := range interpreters() {
		t.Run(interpreter.name, func(t *testing.T) {
			python := interpreter.find(t)
			for _, mode := range []string{"threads", "alone"} {
				t.Run(mode, func(t *testing.T) {
					run := start(t, nil, python, "testdata/churn.py", mode)
					run.line()
					churn(t, mustOpen(t, run.pid))
				})
			}
		})
	}
}

// churn reads a process that runs churn.py for a while.
func churn(t *testing.T, p *Process) {
	t.Helper()
	read, changed, frames := 0, 0, 0
	for end := time.Now().Add(time.Duration(testenv.Repeat(t, 1, 20)) * time.Second / 2); time.Now().Before(end); {
		threads, err := p.Threads()
		if errors.Is(err, ErrUnreadable) {
			changed++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, th := range threads {
			if th.Changed {
				changed++
				continue
			}
			read++
			frames += len(th.Frames)
			if err := possible(th.Frames); err != nil {
				t.Errorf("thread %d: %v: %v", th.ID, err, th.Frames)
			}
		}
	}
	t.Logf("python %v: %d stacks with %d frames, %d that changed", p.Version(), read, frames, changed)
	if read == 0 || frames == 0 {
		t.Error("read no stack")
	}
}

// possible checks the frames of a thread of churn.py: down(n) is called by down(n+1), which is code of its own with the
// number in its name and file, and at a line of the same number.
func possible(frames []Frame) error {
	numbers := []int{}
	for _, f := range frames {
		var n, again, gap int
		if _, err := fmt.Sscanf(f.Function, "down_%d", &n); err != nil {
			continue
		}
		if _, err := fmt.Sscanf(f.File, "<number %d %d>", &again, &gap); err != nil || again != n {
			return fmt.Errorf("function %s is in %s", f.Function, f.File)
		}
		switch f.Line - 3*n {
		case 1, 2, 3 + gap, 4 + gap:
		default:
			return fmt.Errorf("function %s of %s is at line %d", f.Function, f.File, f.Line)
		}
		numbers = append(numbers, n)
	}
	for i, n := range numbers {
		if n != numbers[0]+i {
			return fmt.Errorf("impossible callers %v", numbers)
		}
	}
	if len(numbers) > 0 && numbers[len(numbers)-1] != 9 {
		return errors.New("outer frames are missing")
	}
	return nil
}
