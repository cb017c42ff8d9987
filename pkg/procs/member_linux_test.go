package procs

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Member finds workers, their children and their daemons, and nothing else.
func TestMember(t *testing.T) {
	other := exec.Command("sleep", "100")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	t.Chdir(t.TempDir())
	begun := time.Now()
	script := `sh -c 'exec sleep 1000' & a=$!
		(sleep 1000 & echo $! >orphan)
		(setsid sh -c 'echo $$ >daemon; exec sleep 1000' &)
		true & wait $!; gone=$!
		while [ ! -s daemon ]; do :; done
		echo $a $(cat orphan daemon) $gone; wait`
	workers := []Spec{shell(t, 0, "exec sleep 1000"), shell(t, 1, script), shell(t, 2, "exit 3")}
	g := startGroup(t, workers...)
	defer stopGroup(t, g, orderly)
	var pids []int
	for f := range strings.FieldsSeq(awaitLine(t, workers[1])) {
		pid, _ := strconv.Atoi(f)
		pids = append(pids, pid)
	}
	<-g.Exits() // of rank 2
	now, all := time.Now(), g.PIDs()
	for _, tt := range []struct {
		name string
		pid  int
		at   time.Time
		rank int
		err  error
	}{
		{name: "worker", pid: all[0], at: now, rank: 0},
		{name: "worker with children", pid: all[1], at: now, rank: 1},
		{name: "worker that has ended", pid: all[2], at: now, err: ErrGone},
		{name: "child", pid: pids[0], at: now, rank: 1},
		{name: "orphan", pid: pids[1], at: now, rank: 1},
		{name: "daemon", pid: pids[2], at: now, rank: -1},
		{name: "child that has ended", pid: pids[3], at: now, err: ErrGone},
		{name: "child that is younger", pid: pids[0], at: begun.Add(-time.Minute), err: ErrGone},
		{name: "this process", pid: os.Getpid(), at: now, err: ErrNotMember},
		{name: "another child of this process", pid: other.Process.Pid, at: now, err: ErrNotMember},
		{name: "init", pid: 1, at: now, err: ErrNotMember},
		{name: "process group", pid: -all[0], at: now, err: ErrNotMember},
		{name: "all processes", pid: -1, at: now, err: ErrNotMember},
		{name: "none", pid: 0, at: now, err: ErrNotMember},
	} {
		m, err := g.Member(tt.pid, tt.at)
		if m.LocalRank != tt.rank || !errors.Is(err, tt.err) {
			t.Errorf("%s: rank %d, %v, want rank %d, %v", tt.name, m.LocalRank, err, tt.rank, tt.err)
		}
	}
	m, err := g.Member(all[0], now)
	if err != nil {
		t.Fatal(err)
	}
	m.Signal(syscall.SIGKILL)
	if x := <-g.Exits(); x.LocalRank != 0 || x.Signal != syscall.SIGKILL || x.Stopped {
		t.Errorf("%+v", x)
	}
}
