package main

import (
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A debugger that holds a worker does not keep the job from ending. With no restart left the job ends as failed, and
// not as a membership change.
func TestTracedWorker(t *testing.T) {
	t.Parallel()
	j := startJobOf(t, testBinary(t), "--max-restarts=0", "--restart-grace=1")
	attached, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the debugger is this thread, which ends with the goroutine
		attached <- unix.PtraceSeize(j.workers[0])
		<-ended
	}()
	if err := <-attached; err != nil {
		t.Fatal(err)
	}
	defer close(ended)
	if err := syscall.Kill(j.workers[1], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := j.end(); code != 137 || strings.Contains(j.stderr.String(), "membership change") {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"reason=worker_killed", "processes do not die: pid ", "held by its tracer, pid "} {
		if !strings.Contains(j.stderr.String(), want) {
			t.Errorf("stderr lacks %q", want)
		}
	}
	if t.Failed() {
		t.Logf("stderr:\n%s", &j.stderr)
	}
}
