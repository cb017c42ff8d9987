package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNothingLeft(t *testing.T) {
	t.Parallel()
	mark := Mark()
	NothingLeft(t, mark) // nobody carries it yet

	// A process in a session of its own, whose parent is gone.
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "setsid sleep 300 >/dev/null 2>&1 &")
	cmd.Env = append(os.Environ(), mark)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	Await(t, "the sleep", time.Minute, func() bool { // in the middle of execve it has no environment
		found, err := marked("/proc", mark)
		return err == nil && len(found) == 1 && found[0].command == "sleep 300"
	})
	r := &recorder{TB: t}
	const bound = 300 * time.Millisecond
	start := time.Now()
	NothingLeftWithin(r, mark, bound)
	if len(r.lines) != 1 || !strings.Contains(r.lines[0], "sleep 300") {
		t.Errorf("NothingLeftWithin reported %q, want the one sleep", r.lines)
	}
	if waited := time.Since(start); waited < bound {
		t.Errorf("NothingLeftWithin gave up after %v, want %v", waited, bound)
	}
	NothingLeft(t, mark) // it was killed
}

func TestMarked(t *testing.T) {
	const mark = "ELASTICRUN_TEST_JOB=ABC"
	proc := t.TempDir()
	for pid, files := range map[string]map[string]string{
		"12":                      {"environ": "A=1\x00" + mark + "\x00", "cmdline": "sleep\x009\x00", "status": "Name:\tsleep\nState:\tS (sleeping)\nPPid:\t1\n"},
		"9":                       {"environ": "", "cmdline": "env\x00" + mark + "\x00sleep\x00"},
		"13":                      {"environ": mark + "DEF\x00", "cmdline": "sleep\x00"}, // another job
		"14":                      {"environ": "", "cmdline": ""},                        // a zombie
		"15":                      {},                                                    // ended
		"16":                      {"environ": "", "task/16/environ": "", "task/17/environ": mark + "\x00", "status": "State:\tZ (zombie)\nPPid:\t1\n"},
		"self":                    {"environ": mark + "\x00"}, // a link
		strconv.Itoa(os.Getpid()): {"environ": mark + "\x00"}, // this test
	} {
		dir := filepath.Join(proc, pid)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	found, err := marked(proc, mark)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range found {
		got = append(got, p.String())
	}
	want := []string{
		"pid 9, state ?, parent ?: env " + mark + " sleep",
		"pid 12, state S (sleeping), parent 1: sleep 9",
		"pid 16, state Z (zombie), parent 1: ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("marked (-want +got):\n%s", diff)
	}
}
