package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// If the machine lacks a resource, one line says so, and the exit code is not that of a defect.
func TestMachineLacks(t *testing.T) {
	for _, tt := range []struct {
		name, script string // the script runs "$@"
		root         bool
		workers      string
		want         string
	}{
		{
			"open files for the launcher", `ulimit -n 12; exec "$@"`, false, "1",
			"elasticrun: a process may have 12 open files (ulimit -n), and elasticrun needs 20 and 4 for each worker; raise the limit\n",
		},
		{
			"open files for workers", `ulimit -n 60; exec "$@"`, false, "30",
			": too many open files: a process may have 60 open files (ulimit -n), and elasticrun needs 20 and 4 for each worker; raise the limit\n",
		},
		{
			"proc", `exec unshare --mount sh -c 'mount -t tmpfs none /proc && exec "$@"' sh "$@"`, true, "1",
			"elasticrun: start the agent: /proc/self/exe does not exist because /proc is not mounted or belongs to another pid namespace; mount /proc\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.root {
				testenv.Root(t) // to mount
			}
			cmd := exec.CommandContext(t.Context(), "sh", "-c", tt.script, "sh", testenv.Binary(t), "--no-python",
				"--nproc-per-node="+tt.workers, "true")
			out, _ := cmd.CombinedOutput()
			if code := testenv.ExitCode(cmd.ProcessState); code != 72 || !strings.HasSuffix(string(out),
				tt.want+"elasticrun: exit_code=72 reason=preflight\n") {
				t.Errorf("exit code %d, want 72 and %q:\n%s", code, tt.want, out)
			}
		})
	}
}
