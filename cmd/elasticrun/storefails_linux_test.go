package main

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/coord"
)

// onSmallDisk is a command that executes its arguments with a file system of that size at dir.
func onSmallDisk(t *testing.T, dir, size string) []string {
	t.Helper()
	testenv.Root(t)
	wrap := []string{"unshare", "--mount", "sh", "-ec", "mount -t tmpfs -o size=" + size + " none '" + dir +
		`'; exec "$@"`, "sh"}
	if out, err := exec.CommandContext(t.Context(), wrap[0], append(wrap[1:], "true")...).CombinedOutput(); err != nil {
		testenv.Missing(t, "needs to mount a file system: %v: %s", err, out)
	}
	return wrap
}

// A store whose disk is full ends with an error: no job begins in a store that no agent can use, and its health says so
// while a worker finishes its request.
func TestStoreDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startWrappedStore(t, onSmallDisk(t, dir, "512k"), "--data-dir="+dir)
	half, rest := s.halfway()
	agent, err := coord.Dial(t.Context(), coord.DialOptions{Addr: s.addr, RunID: "r", TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := putStatus(t, agent, "r", 1<<20-100); !errors.Is(err, coord.ErrUnavailable) {
		t.Errorf("a commit for which the disk has no room: %v", err)
	}
	s.await(func(h storeHealth) bool { return h.Code == 503 && h.Status == "failed" })
	half.send(rest)
	half.sum(6)
	if code := s.end(); code != exitRendezvous {
		t.Errorf("exit code %d, want %d", code, exitRendezvous)
	}
	for _, text := range []string{
		"cannot write to --data-dir=" + dir, "no space left on device",
		"exit_code=75 reason=rendezvous",
	} {
		if !strings.Contains(s.stderr.String(), text) {
			t.Errorf("stderr without %q:\n%s", text, &s.stderr)
		}
	}
	_ = agent.Close(t.Context()) // it waits for its TTL
}
