package slurmlab

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// KillNode kills a node such as "n3" as a crash does: its slurmd and all of its processes, without a message to the
// controller. The other nodes see their connections closed. The node does not come back.
func (l *Lab) KillNode(t testing.TB, node string) {
	t.Helper()
	testenv.Await(t, "the end of "+node, startBound, func() bool {
		left := l.on(node)
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(left) == 0
	})
}

// on lists the processes of a node. Processes that start tasks come first: if they were killed after their tasks,
// they would report how the tasks ended.
func (l *Lab) on(node string) []int {
	var daemons, tasks []int
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range paths {
		pid, _ := strconv.Atoi(filepath.Base(proc))
		// Errors mean that the process has ended.
		environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
		variables := strings.Split(string(environ), "\x00")
		if !slices.Contains(variables, "SLURM_CONF="+l.path("slurm.conf")) {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		switch {
		case bytes.HasSuffix(cmdline, []byte("slurmd\x00-N\x00"+node+"\x00")):
			daemons = append(daemons, pid)
		case slices.Contains(variables, "SLURMD_NODENAME="+node):
			tasks = append(tasks, pid)
			if parent := parentOf(proc); isStep(parent) {
				daemons = append(daemons, parent)
			}
		}
	}
	return slices.Compact(append(daemons, tasks...))
}

func parentOf(proc string) int {
	status, _ := os.ReadFile(filepath.Join(proc, "status"))
	_, rest, _ := strings.Cut(string(status), "\nPPid:\t")
	line, _, _ := strings.Cut(rest, "\n")
	pid, _ := strconv.Atoi(line)
	return pid
}

// isStep reports whether a process is the one that slurmd starts for each step of a job.
func isStep(pid int) bool {
	name, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	return strings.HasPrefix(string(name), "slurmstepd")
}
