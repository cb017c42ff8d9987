package procs

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// startShell runs a script that reads commands from the returned function. The function waits until each command has
// printed a line.
func startShell(t *testing.T, script string) (pid int, step func(line string)) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	stdin, stdout := testenv.StartWithPipes(t, cmd)
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(stdout)
	return cmd.Process.Pid, func(line string) {
		t.Helper()
		if _, err := stdin.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() {
			t.Fatalf("no answer to %q", line)
		}
	}
}

func TestSamplerSumsTheTree(t *testing.T) {
	file := filepath.Join(t.TempDir(), "data")
	// The worker waits; its child does the work.
	busy, step := startShell(t, `( while read -r line; do eval "$line"; echo done; done ); exit 0`)
	idle, settle := startShell(t, `read -r line; echo; read -r line`)
	step(":")
	settle("") // else its start could use CPU time after the first sample

	s := NewSampler()
	pids := map[int]int{0: busy, 1: idle, 2: 1 << 22}
	first := s.Sample(pids)
	if len(first) != 2 {
		t.Fatalf("sampled %v: want local ranks 0 and 1", first)
	}
	if first[0].Processes != 2 || first[1].Processes != 1 {
		t.Errorf("processes: %d and %d, want 2 and 1", first[0].Processes, first[1].Processes)
	}
	if first[0].CPU != 0 || first[0].RSS < 100<<10 || first[0].RSS <= first[1].RSS {
		t.Errorf("first sample %+v and %+v: want no CPU yet, and more memory in two processes", first[0], first[1])
	}

	step(`i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done`)
	step(`head -c 4194304 /dev/zero >'` + file + `'; head -c 1 '` + file + `' >/dev/null`)
	second := s.Sample(pids)
	if cpu := second[0].CPU; cpu <= 0 || cpu > 2 {
		t.Errorf("busy worker's CPU share %v: want some, at most 2", cpu)
	}
	if cpu := second[1].CPU; cpu != 0 {
		t.Errorf("idle worker's CPU share %v", cpu)
	}
	if second[0].ReadBytes < first[0].ReadBytes || second[0].WriteBytes < first[0].WriteBytes {
		t.Errorf("totals went back: %+v, then %+v", first[0], second[0])
	}

	// CPU time before the last sample does not count again.
	s.at = s.at.Add(-time.Hour)
	third := s.Sample(pids)
	if seconds := third[0].CPU * 3600; seconds > 0.05 {
		t.Errorf("idle now, but used %v s of CPU", seconds)
	}

	// Another process under the same rank starts again from 0.
	if again := s.Sample(map[int]int{0: idle}); again[0].CPU != 0 || again[0].Processes != 1 {
		t.Errorf("after a restart: %+v", again[0])
	}
}

func TestSamplerSeesItself(t *testing.T) {
	pids := map[int]int{0: os.Getpid()}
	if u := NewSampler().Sample(pids)[0]; u.Processes < 1 || u.RSS < 1<<20 {
		t.Errorf("this process uses %+v", u)
	}
}

func BenchmarkSample(b *testing.B) {
	s := NewSampler()
	for b.Loop() {
		s.Sample(map[int]int{0: os.Getpid()})
	}
}
