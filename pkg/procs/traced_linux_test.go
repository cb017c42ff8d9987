package procs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// trace is a debugger that attaches to a process and then does nothing until its stdin ends.
func trace(args []string) {
	runtime.LockOSThread() // a thread is the tracer
	pid, _ := strconv.Atoi(args[0])
	if err := unix.PtraceSeize(pid); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ok")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// A debugger holds the exit status of a process. Stop returns within its timeout, and names both.
func TestStopOfATracedWorker(t *testing.T) {
	s, err := NewSupervisor(Options{KillTimeout: killTimeout})
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.Start([]Spec{shell(t, 0, "exec sleep 1000"), shell(t, 1, "exec sleep 1000")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	debugger := exec.Command(os.Args[0], strconv.Itoa(g.PIDs()[0]))
	debugger.Env = append(os.Environ(), helperEnv+"=trace")
	in, out := testenv.StartWithPipes(t, debugger)
	attached := make([]byte, 80)
	if n, err := out.Read(attached); err != nil || string(attached[:n]) != "ok\n" {
		t.Fatalf("attach: %q, %v", attached[:n], err)
	}

	stopped := make(chan error, 1)
	begun := time.Now()
	go func() { stopped <- g.Stop(StopPolicy{Signal: syscall.SIGKILL}) }()
	select {
	case err = <-stopped:
	case <-time.After(killTimeout + 30*time.Second):
		t.Error("the stop is not bounded")
	}
	took := time.Since(begun)
	var stuck *StuckError
	switch {
	case t.Failed():
	case !errors.As(err, &stuck) || len(stuck.Processes) != 1:
		t.Errorf("Stop: %v", err)
	default:
		want := fmt.Sprintf("held by its tracer, pid %d (%s): end that debugger", debugger.Process.Pid, "procs.test")
		if !strings.Contains(stuck.Processes[0], want) {
			t.Errorf("%q lacks %q", stuck.Processes[0], want)
		}
		if took < killTimeout {
			t.Errorf("took %v", took)
		}
	}
	_ = in.Close()
	_ = debugger.Wait()
	if !t.Failed() {
		if err := g.Stop(StopPolicy{Signal: syscall.SIGKILL}); err != nil {
			t.Error(err)
		}
	} else {
		<-stopped
	}
	if err := errors.Join(g.Drain(t.Context()), s.Close()); err != nil {
		t.Error(err)
	}
}
