package procs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// startSuspendable is startGroup with a Suspension.
func startSuspendable(t *testing.T, s *Suspension, specs ...Spec) (*Supervisor, *Group) {
	t.Helper()
	sup, err := NewSupervisor(Options{Suspension: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sup.Close(); err != nil {
			t.Error(err)
		}
	})
	g, err := sup.Start(specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	return sup, g
}

// awaitStopped waits until so many processes of the job are stopped, and so many are not. A shell that waits for a
// stopped process in vfork is in state D.
func awaitStopped(t *testing.T, stopped, others int) {
	t.Helper()
	var all []proctree.Process
	defer func() {
		if t.Failed() {
			t.Logf("the job: %v", all)
		}
	}()
	testenv.Await(t, fmt.Sprintf("%d stopped processes and %d others", stopped, others), time.Minute, func() bool {
		n := 0
		all = liveJob()
		for _, p := range all {
			if p.Stopped() || p.State == 'D' {
				n++
			}
		}
		return n == stopped && len(all)-n == others
	})
}

// All processes of the job are stopped, also those in other sessions, and continued. A process that had stopped itself
// stays stopped.
func TestSuspend(t *testing.T) {
	var s Suspension
	s.Suspend()
	s.Resume() // before there is a worker
	script := "sleep 1000 & setsid sleep 1000 & (setsid sleep 1000 &); sh -c 'kill -STOP $$; exec sleep 1000' & exec sleep 1000"
	_, g := startSuspendable(t, &s, shell(t, 0, script), shell(t, 1, script), shell(t, 2, "true"))
	<-g.Exits()
	awaitStopped(t, 2, 8)
	for range 2 {
		if n := s.Suspend(); n != 2 {
			t.Errorf("%d workers, want 2: those that run", n)
		}
		awaitStopped(t, 10, 0)
		s.Resume()
		awaitStopped(t, 2, 8)
	}
	stopGroup(t, g, orderly)
}

// A worker that starts while the job is suspended is stopped until the job continues.
func TestStartWhileSuspended(t *testing.T) {
	var s Suspension
	sup, g := startSuspendable(t, &s, shell(t, 0, "exec sleep 1000"))
	s.Suspend()
	awaitStopped(t, 1, 0)
	stopGroup(t, g, orderly)
	g, err := sup.Start([]Spec{shell(t, 0, "exec sleep 1000"), shell(t, 1, "exec sleep 1000")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	awaitStopped(t, 2, 0)
	s.Resume()
	awaitStopped(t, 0, 2)
	stopGroup(t, g, orderly)
}

// A suspended group ends in order, although its worker waits for a process in another session.
func TestStopWhileSuspended(t *testing.T) {
	var s Suspension
	spec := shell(t, 0, `trap 'kill $child; wait $child; exit 7' TERM
setsid sh -c 'trap "exit 0" TERM; echo; while :; do sleep 0.01; done' & child=$!
wait`)
	_, g := startSuspendable(t, &s, spec)
	awaitLine(t, spec)
	s.Suspend()
	stopGroup(t, g, orderly)
	if e := <-g.Exits(); e.Code != 7 {
		t.Errorf("%v, want the code of its handler", e)
	}
}

// A group that is being stopped when the job is suspended ends in order.
func TestSuspendWhileStopping(t *testing.T) {
	var s Suspension
	proceed := filepath.Join(t.TempDir(), "proceed")
	spec := shell(t, 0, fmt.Sprintf(
		"trap 'echo ending; until [ -e %s ]; do sleep 0.01; done; exit 7' TERM; echo ready; while :; do sleep 0.01; done", proceed))
	_, g := startSuspendable(t, &s, spec)
	awaitLine(t, spec)
	ended := make(chan error)
	go func() { ended <- g.Stop(orderly) }()
	testenv.Await(t, "the handler", time.Minute, func() bool {
		data, _ := os.ReadFile(spec.Stdout.File)
		return strings.Contains(string(data), "ending")
	})
	s.Suspend()
	if err := os.WriteFile(proceed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	stopped := <-g.Exits()
	if stopped.Code != 7 || stopped.Signal == syscall.SIGKILL {
		t.Errorf("%v, want the code of its handler", stopped)
	}
	if err := g.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// suspendOnce suspends and continues a worker, and exits with 0 if the kernel reports that the worker did so.
func suspendOnce([]string) {
	var s Suspension
	sup, err := NewSupervisor(Options{Suspension: &s})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	g, err := sup.Start([]Spec{{Argv: []string{"sleep", "1000"}, Env: os.Environ()}}, nil)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	var stopped, continued syscall.WaitStatus
	s.Suspend()
	_, err1 := syscall.Wait4(g.PIDs()[0], &stopped, syscall.WUNTRACED, nil)
	s.Resume()
	_, err2 := syscall.Wait4(g.PIDs()[0], &continued, syscall.WCONTINUED, nil)
	fmt.Println(proctree.ProcIsOurs(), stopped.Stopped(), continued.Continued())
	if err := errors.Join(err1, err2, g.Stop(StopPolicy{Signal: syscall.SIGKILL})); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// Workers are suspended although /proc shows another pid namespace.
func TestSuspendInForeignProc(t *testing.T) {
	testenv.Root(t) // to make a pid namespace without a /proc of its own
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--fork", "--pid", "--kill-child", os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"=suspend")
	out, err := cmd.CombinedOutput()
	if want := "false true true\n"; err != nil || string(out) != want {
		t.Errorf("%q, %v, want %q", out, err, want)
	}
}
