package sdnotify

import (
	"context"
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func environment(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, pair := range pairs {
			if value, found := strings.CutPrefix(pair, name+"="); found {
				return value, true
			}
		}
		return "", false
	}
}

func TestNotify(t *testing.T) {
	sockets := []string{filepath.Join(t.TempDir(), "s")}
	if runtime.GOOS == "linux" {
		sockets = append(sockets, "@"+sockets[0]) // an abstract address is no file
	}
	for _, socket := range sockets {
		testNotify(t, socket)
	}
}

func testNotify(t *testing.T, socket string) {
	t.Helper()
	server, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	m, err := Find(environment("NOTIFY_SOCKET="+socket), 7)
	if err != nil {
		t.Fatal(err)
	}
	for _, states := range [][]string{{Ready, "STATUS=serves"}, {Stopping}} {
		if err := m.Notify(states...); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 100)
		n, err := server.Read(buffer)
		if want := strings.Join(states, "\n"); err != nil || string(buffer[:n]) != want {
			t.Errorf("%s: got %q, %v; want %q", socket, buffer[:n], err, want)
		}
	}
}

func TestNotifyNobody(t *testing.T) {
	m, err := Find(environment(), 7)
	if m != nil || err != nil || m.Notify(Ready) != nil || m.WatchdogTimeout() != 0 {
		t.Errorf("without a manager: %v, %v", m, err)
	}
	gone := filepath.Join(t.TempDir(), "gone")
	if m, err = Find(environment("NOTIFY_SOCKET="+gone), 7); err != nil {
		t.Fatal(err)
	}
	if err := m.Notify(Ready); err == nil || !strings.Contains(err.Error(), "NOTIFY_SOCKET="+gone) {
		t.Errorf("a manager that is gone: %v", err)
	}
}

// A manager that does not read does not block the service for long: the kernel's queue of a socket is bounded.
func TestNotifyFull(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	server, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	m := &Manager{socket: socket, sendTimeout: time.Millisecond}
	for range 10_000 {
		if err = m.Notify(Alive); err != nil {
			break
		}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("10,000 messages that nobody reads: %v", err)
	}
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		env     []string
		timeout time.Duration
		problem string
	}{
		{env: []string{"NOTIFY_SOCKET=/s"}},
		{env: []string{"NOTIFY_SOCKET=/s", "WATCHDOG_USEC=1500"}, timeout: 1500 * time.Microsecond},
		{env: []string{"NOTIFY_SOCKET=/s", "WATCHDOG_USEC=1500", "WATCHDOG_PID=7"}, timeout: 1500 * time.Microsecond},
		{env: []string{"NOTIFY_SOCKET=/s", "WATCHDOG_USEC=1500", "WATCHDOG_PID=8"}},
		{
			env:     []string{"NOTIFY_SOCKET=/s", "WATCHDOG_USEC=9223372036854775807"},
			timeout: math.MaxInt64 / time.Microsecond * time.Microsecond,
		},
		{env: []string{"NOTIFY_SOCKET=/s", "WATCHDOG_USEC=0"}, problem: "WATCHDOG_USEC=0: must be a number of microseconds"},
		{env: []string{"NOTIFY_SOCKET=vsock:2:1"}, problem: "NOTIFY_SOCKET=vsock:2:1: must be an absolute path, or a name after @"},
	} {
		m, err := Find(environment(c.env...), 7)
		problem := ""
		if err != nil {
			problem = err.Error()
		}
		if problem != c.problem || m.WatchdogTimeout() != c.timeout {
			t.Errorf("%v: %v, %q", c.env, m.WatchdogTimeout(), problem)
		}
	}
}
