package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/failure"
)

// The OOM killer kills a worker whose cgroup is too small for it. The report names the cgroup's limit.
func TestOOMKill(t *testing.T) {
	testenv.Root(t)
	group := limitedCgroup(t, "96M")
	by := []string{"sh", "-c", `echo $$ > "$0"/cgroup.procs && exec "$@"`, group}
	g := startGoldenBy(t, by, "--rdzv-id=job", "--nproc-per-node=2", "fail.py", "eat", "1")
	r, data := g.end()
	if r.RootCause == nil || r.RootCause.Kind != string(failure.OOMKilled) || r.ExitCode != 137 {
		t.Fatalf("%s\n%s", data, &g.stderr)
	}
	g.unstable = append(g.unstable, group, "GROUP")
	g.compare("oom", data)
}

// limitedCgroup makes a memory cgroup below this process' own.
func limitedCgroup(t *testing.T, limit string) string {
	t.Helper()
	own := evidence.ReadMemory(os.DirFS("/"))
	if own.Path == "" {
		testenv.Missing(t, "needs a memory cgroup")
	}
	group := filepath.Join(own.Path, fmt.Sprintf("elasticrun-test-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		testenv.Missing(t, "needs a memory cgroup that it may divide: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	})
	file := "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(group, file)); err != nil {
		file = "memory.max"
	}
	// the controller may not be handed down
	if err := os.WriteFile(filepath.Join(group, file), []byte(limit), 0); err != nil {
		testenv.Missing(t, "needs a memory cgroup that it may divide: %v", err)
	}
	return group
}

// The same is reported of a worker that moved to a cgroup below the launcher's, with the limit of that cgroup.
func TestOOMKillBelow(t *testing.T) {
	testenv.Root(t)
	python := testenv.Python(t)
	group := limitedCgroup(t, "96M")
	// The launcher makes one dollar of two.
	const move = `echo $$$$ > "$0"/cgroup.procs && exec "$@"`
	g := startGolden(t, "--rdzv-id=job", "--no-python", "sh", "-c", move, group, python, "fail.py", "eat", "0")
	r, data := g.end()
	if r.RootCause == nil || r.RootCause.Kind != string(failure.OOMKilled) || r.ExitCode != 137 ||
		!strings.Contains(r.RootCause.Summary, "memory limit 96 MiB of "+group) {
		t.Errorf("%s\n%s", data, &g.stderr)
	}
}
