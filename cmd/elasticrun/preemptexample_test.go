package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestPreemptExample preempts examples/preempt.py with real torch. The next run continues from the saved step.
func TestPreemptExample(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("../../examples/preempt.py")
	if err != nil {
		t.Fatal(err)
	}
	checkpoint, python := filepath.Join(t.TempDir(), "checkpoint.pt"), testenv.Torch(t, "1.13")
	start := func(steps int) (*exec.Cmd, *bufio.Scanner) {
		cmd := exec.CommandContext(t.Context(), testenv.Binary(t), "--nproc-per-node=2", "--preempt-signals=USR1",
			script, "--checkpoint", checkpoint, "--steps", fmt.Sprint(steps))
		cmd.Env = append(os.Environ(), "PYTHON_EXEC="+python, "OMP_NUM_THREADS=1", "TMPDIR="+t.TempDir())
		return cmd, bufio.NewScanner(testenv.StartWithOutput(t, cmd))
	}
	first, lines := start(1 << 40)
	saved := -1
	for lines.Scan() {
		if lines.Text() == "step 0" {
			_ = first.Process.Signal(syscall.SIGUSR1)
		}
		_, _ = fmt.Sscanf(lines.Text(), "saved before step %d", &saved)
	}
	if _ = first.Wait(); first.ProcessState.ExitCode() != 79 || saved < 1 {
		t.Fatalf("the job ended with %v, after it had saved before step %d", first.ProcessState, saved)
	}
	next, lines := start(saved + 3)
	var text strings.Builder
	for lines.Scan() {
		_, _ = io.WriteString(&text, lines.Text()+"\n")
	}
	if _ = next.Wait(); !next.ProcessState.Success() || strings.Contains(text.String(), "step 0\n") {
		t.Errorf("the next run ended with %v, after\n%s", next.ProcessState, &text)
	}
}
