package slurmlab

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Process is a process of a job.
type Process struct {
	PID       int
	Name      string // as /proc/PID/comm has it
	Args, Env []string
}

// Processes returns the processes of the job that run now, on all nodes. It leaves out those without a readable
// environment, such as zombies.
func (j *Job) Processes(t testing.TB) []Process {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var all []Process
	for _, path := range paths {
		env, _ := os.ReadFile(path) // the process may have ended
		args, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		name, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "comm"))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if p := (Process{pid, strings.TrimSpace(string(name)), split(args), split(env)}); slices.Contains(p.Env, j.mark) {
			all = append(all, p)
		}
	}
	return all
}

// split returns the strings in a file of /proc, each of which ends with a zero byte.
func split(data []byte) []string {
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}

// Dir returns the folder of all files of the daemons: state, spools and logs.
func (l *Lab) Dir() string { return l.dir }
