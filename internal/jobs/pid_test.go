package jobs

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestProvenPID checks that a record cannot make anybody signal a process of another user.
func TestProvenPID(t *testing.T) {
	const init, guard, agent, orphan, foreign, attacker = 1, 10, 11, 12, 20, 61299
	processes := map[int][2]int{ // parent and user
		init: {0, 0}, guard: {init, attacker}, agent: {guard, attacker}, orphan: {init, attacker}, foreign: {init, 0},
	}
	read := func(pid int) (int, int) {
		if p, ok := processes[pid]; ok {
			return p[0], p[1]
		}
		return 0, -1
	}
	for _, tt := range []struct {
		name                   string
		recorded, server, want int
	}{
		{"the agent's parent", guard, agent, guard},
		{"the agent itself", agent, agent, agent},
		{"another process", foreign, agent, agent},
		{"the parent is another user's", init, orphan, orphan},
		{"the server is another user's", foreign, foreign, 0},
		{"the server has gone", agent, 99, 0},
		{"the server is in another pid namespace", init, 0, 0},
	} {
		if got := provenPID(tt.recorded, tt.server, attacker, read); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	// Other tests change the user of a thread of this process, which may be the one that /proc shows.
	if parent, _ := readProcess(os.Getpid()); parent != os.Getppid() {
		t.Errorf("this process: parent %d", parent)
	}
	if _, uid := readProcess(os.Getppid()); uid != os.Geteuid() {
		t.Errorf("the parent: user %d", uid)
	}
	if _, uid := readProcess(1 << 30); uid != -1 {
		t.Errorf("no process: user %d", uid)
	}
}

// TestIsStopped checks that a process counts as stopped after SIGSTOP.
func TestIsStopped(t *testing.T) {
	child := exec.Command("sleep", "60")
	must(t, child.Start())
	defer func() { _, _ = child.Process.Kill(), child.Wait() }()
	must(t, child.Process.Signal(syscall.SIGSTOP))
	if _, err := syscall.Wait4(child.Process.Pid, nil, syscall.WUNTRACED, nil); err != nil {
		t.Fatal(err)
	}
	if !IsStopped(child.Process.Pid) {
		t.Error("after SIGSTOP")
	}
	if IsStopped(os.Getpid()) || IsStopped(1<<30) {
		t.Error("this process or none counts as stopped")
	}
}
