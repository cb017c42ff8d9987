package evidence

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// A process that a signal has stopped is in state T.
func TestSwitches(t *testing.T) {
	m, pid := new(Machine), os.Getpid()
	before := m.Switches(pid)
	for range 1000 {
		if now := m.Switches(pid); before == 0 || now < before {
			t.Fatalf("%d switches, and %d before", now, before)
		}
	}
	if n := m.Switches(1 << 30); n != 0 {
		t.Errorf("%d switches of a process that does not exist", n)
	}
}

func TestState(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var m Machine
	if got := m.State(cmd.Process.Pid); got == 0 || got == 'T' {
		t.Errorf("a process that runs is in state %q", got)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("%v, %v", status, err)
	}
	if got := m.State(cmd.Process.Pid); got != 'T' {
		t.Errorf("a process that is stopped is in state %q", got)
	}
	if got := m.State(1 << 30); got != 0 {
		t.Errorf("no process is in state %q", got)
	}
}
