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

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// namespaceDir is the folder in which ip-netns(8) keeps the names.
const namespaceDir = "/run/netns"

// allPrefix begins the names of all namespaces. The process id and start time of their owner follow, so that another
// test can find out whether the owner is alive.
const allPrefix = "erlab-"

func newPrefix() string {
	return fmt.Sprintf("%s%d-%s-%s-", allPrefix, os.Getpid(), StartOf(os.Getpid()), rand.Text()[:6])
}

// abandoned reports whether the process that made a namespace has ended.
func abandoned(name string) bool {
	rest, ours := strings.CutPrefix(name, allPrefix)
	fields := strings.Split(rest, "-")
	if !ours || len(fields) != 4 {
		return false
	}
	pid, err := strconv.Atoi(fields[0])
	return err == nil && StartOf(pid) != fields[1]
}

// StartOf returns the start time of a process in ticks since boot, or "" if the process has ended. A zombie has ended.
func StartOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field, in parentheses, can contain spaces. The state is field 3, the start time field 22.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 22-2 || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fields[22-3]
}

// sweep removes the namespaces that killed tests have left.
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
		// Another test can remove the same namespace meanwhile.
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

// tools returns an error that names the first missing program.
func tools() error {
	return testenv.Programs(map[string]string{
		"ip": "iproute2", "nsenter": "util-linux", "unshare": "util-linux", "mount": "mount",
	})
}

// run executes a program and returns its output. The error contains the command and its output.
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
