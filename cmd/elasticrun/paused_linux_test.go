package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// If an agent is paused by SIGSTOP, its guard stops the workers before the other nodes go on without them.
func TestPausedAgent(t *testing.T) {
	t.Parallel()
	store := startStore(t)
	j := startJob(t, "--nnodes=1:2", "--rdzv-endpoint="+store.addr, "--rdzv-id=paused",
		"--rdzv-conf=last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=2")
	agent := j.agentPID()
	if err := syscall.Kill(agent, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, pid := range j.workers {
		awaitDead(t, pid)
	}
	if state := processState(t, agent); state != "T" {
		t.Errorf("the agent is in state %s, want it stopped", state)
	}
	if err := syscall.Kill(agent, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// What it finds is that its session is over, or that the store has not been heard of for too long.
	if err := j.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := j.end(); code != 143 && code != exitRendezvous {
		t.Errorf("exit code %d\n%s", code, &j.stderr)
	}
	if !strings.Contains(j.stderr.String(), "the agent was silent for") {
		t.Errorf("stderr does not say why the workers were killed:\n%s", &j.stderr)
	}
}

// awaitDead waits until a process, a worker whose agent cannot reap it, runs no more.
func awaitDead(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	within := 20 * time.Second
	var n int
	for until := time.Now().Add(within); ; { // Go's runtime sends signals, which interrupt the call
		left := max(0, time.Until(until))
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil || n == 0 {
		t.Errorf("process %d is in state %s after %v (%v)", pid, processState(t, pid), within, err)
	}
}

// processState is the letter that /proc has for it.
func processState(t *testing.T, pid int) string {
	t.Helper()
	return statField(t, pid, 0)
}

// statField is field i of /proc/PID/stat after the name: the state, the parent, the process group.
func statField(t *testing.T, pid, i int) string {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.Fields(after)[i]
}
