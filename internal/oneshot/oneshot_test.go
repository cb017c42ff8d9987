package oneshot

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRunLeavesNothing checks that no process of a program outlives it: at the limit, and with Alone also when the
// program ends by itself.
func TestRunLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, script string
		limit        time.Duration
		alone        bool
		err          string
	}{
		{name: "no end", script: `sleep 100 >&3 2>&3 & sleep 100`, limit: 2 * time.Second, err: "no end within 2s"},
		{name: "no end, alone", script: `setsid sleep 100 >&3 2>&3 & sleep 100`, limit: 2 * time.Second, alone: true, err: "no end within 2s"},
		{name: "an end", script: `sleep 100 >&3 2>&3 &`, limit: time.Minute, alone: true},
		{name: "an end with another session", script: `setsid sh -c 'sleep 100 & sleep 100' >&3 2>&3 &`, limit: time.Minute, alone: true},
		{name: "an end with an empty environment", script: `env -i sleep 100 >&3 2>&3 &`, limit: time.Minute, alone: true},
		{name: "a child with the output", script: `setsid sleep 100 &`, limit: time.Minute, alone: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			pipe := filepath.Join(t.TempDir(), "pipe")
			if err := syscall.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = r.Close() }()
			var out Tail
			c := Command{
				Argv: []string{"sh", "-c", `exec 3>"$0"; echo x >&3; ` + tc.script, pipe}, Stdout: &out, Stderr: &out,
				Limit: tc.limit, Alone: tc.alone,
			}
			if err := c.Run(t.Context()); (err == nil) != (tc.err == "") || err != nil && err.Error() != tc.err {
				t.Errorf("%v, want %q", err, tc.err)
			}
			_ = r.SetReadDeadline(time.Now().Add(time.Minute))
			if got, err := io.ReadAll(r); err != nil || string(got) != "x\n" {
				t.Errorf("%q, %v: what holds the other end lives on", got, err)
			}
		})
	}
}

// Without Alone, processes that a program leaves when it ends by itself keep running, such as a daemon that a site's
// check starts.
func TestRunLeavesDaemons(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	c := Command{Argv: []string{"sh", "-c", `sleep 100 >&- 2>&- & echo $! >"$0"`, file}, Limit: time.Minute}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(daemon, syscall.SIGKILL); err != nil {
		t.Errorf("the daemon is gone: %v", err)
	}
}
