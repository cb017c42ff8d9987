package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A store notifies the service manager when it listens, while its watchdog is fed, and when it stops.
func TestStoreNotifiesServiceManager(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	if err := manager.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	receive := func() string {
		t.Helper()
		buffer := make([]byte, 1000)
		n, err := manager.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return string(buffer[:n])
	}
	s := startWrappedStore(t, []string{"env", "NOTIFY_SOCKET=" + socket, "WATCHDOG_USEC=30000"})
	want := "READY=1\nSTATUS=store listening on " + s.addr + " health on " + s.health
	if diff := cmp.Diff(want, receive()); diff != "" {
		t.Errorf("the first message (-want +got):\n%s", diff)
	}
	for range 2 {
		if got := receive(); got != "WATCHDOG=1" {
			t.Errorf("want a sign of life: %q", got)
		}
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	got := receive()
	for got == "WATCHDOG=1" {
		got = receive()
	}
	if got != "STOPPING=1" {
		t.Errorf("the last message: %q", got)
	}
	<-s.ended
	if code := s.cmd.ProcessState.ExitCode(); code != 0 || s.stderr.Len() > 0 && strings.Contains(s.stderr.String(), "WRN") {
		t.Errorf("exit code %d, stderr %s", code, s.stderr.String())
	}
}

// A store whose service manager cannot be notified says so and serves.
func TestStoreWithoutItsServiceManager(t *testing.T) {
	for socket, want := range map[string]string{
		filepath.Join(t.TempDir(), "gone"): "the service manager was not notified",
		"vsock:2:1":                        "NOTIFY_SOCKET=vsock:2:1: must be an absolute path, or a name after @; the service manager is not notified",
	} {
		s := startWrappedStore(t, []string{"env", "NOTIFY_SOCKET=" + socket})
		if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		<-s.ended
		if code := s.cmd.ProcessState.ExitCode(); code != 0 || !strings.Contains(s.stderr.String(), want) {
			t.Errorf("%s: exit code %d, stderr %q; want %q in it", socket, code, s.stderr.String(), want)
		}
	}
}
