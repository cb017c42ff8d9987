package hosts

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// namespaceDir is where ip-netns(8) keeps the names.
const namespaceDir = "/run/netns"

// Names begin with the id and the start of the process that made them, so that it is known whether that lives.
const allPrefix = "erlab-"

func newPrefix() string {
	return fmt.Sprintf("%s%d-%s-%s-", allPrefix, os.Getpid(), startOf(os.Getpid()), rand.Text()[:6])
}

// abandoned tells that the process that made a namespace has ended.
func abandoned(name string) bool {
	rest, ours := strings.CutPrefix(name, allPrefix)
	fields := strings.Split(rest, "-")
	if !ours || len(fields) != 4 {
		return false
	}
	pid, err := strconv.Atoi(fields[0])
	return err == nil && startOf(pid) != fields[1]
}

// startOf returns when a process started, in ticks since boot, or "" if it has ended.
func startOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field, in parentheses, may hold anything; the start is the 22nd.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	return string(fields[22-3])
}

// sweep removes what tests that were killed have left.
func sweep(t testing.TB) {
	t.Helper()
	names, err := namespaces(allPrefix)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !abandoned(name) {
			continue
		}
		t.Logf("removing %s, which a killed test has left", name)
		// Another test may be doing the same.
		h := &Host{Name: name, namespace: name}
		if left := h.awaitEmpty(removeBound, true); len(left) > 0 {
			t.Fatalf("cannot kill %v", left)
		}
		if err := deleteNamespace(name); err != nil {
			if _, gone := os.Stat(filepath.Join(namespaceDir, name)); gone == nil {
				t.Fatal(err)
			}
		}
	}
}

// namespaces returns the names that begin with prefix.
func namespaces(prefix string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(namespaceDir, prefix+"*"))
	for i, p := range paths {
		paths[i] = filepath.Base(p)
	}
	return paths, err
}

func addNamespace(name string) error {
	_, err := run("", "ip", "netns", "add", name)
	return err
}

func deleteNamespace(name string) error {
	_, err := run("", "ip", "netns", "delete", name)
	return err
}

// tools returns an error that says which program is missing.
func tools() error {
	for program, debian := range map[string]string{"ip": "iproute2", "nsenter": "util-linux", "unshare": "util-linux", "mount": "mount"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w (apt-get install %s)", err, debian)
		}
	}
	return nil
}

// run returns what a program has written; its error says what was run and what that said.
func run(input, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("run %s %s: %w: %s", program, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return string(out), nil
}
