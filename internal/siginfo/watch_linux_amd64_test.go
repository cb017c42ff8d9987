package siginfo

import (
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const long = 20 * time.Second

// A signal that a process sends reaches the program, with its sender.
func TestSent(t *testing.T) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGTERM)
	defer signal.Stop(signals)
	w := Watch(syscall.SIGUSR1, syscall.SIGTERM, syscall.SIGUSR1) // one of them twice
	defer w.Close()
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM} {
		cmd := exec.Command("sh", "-c", "kill -"+strconv.Itoa(int(sig))+" "+strconv.Itoa(os.Getpid()))
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-signals:
		case <-time.After(long):
			t.Fatal("the signal has not arrived")
		}
		o := w.Take(sig)
		if o.Sent != 1 || o.Kernel != 0 || o.PID != cmd.Process.Pid || o.UID != os.Getuid() {
			t.Errorf("%v: %+v, want pid %d", sig, o, cmd.Process.Pid)
		}
		if again := w.Take(sig); again != (Origin{}) {
			t.Errorf("it counts twice: %+v", again)
		}
	}
}

// Another process that uses this package learns the origin that is passed on.
func TestPassed(t *testing.T) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR2)
	defer signal.Stop(signals)
	w := Watch(syscall.SIGUSR2)
	defer w.Close()
	for _, tt := range []struct {
		name         string
		origin, want Origin
	}{
		{"a sender", Origin{Sent: 3, PID: 4711, UID: 12}, Origin{Sent: 1, PID: 4711, UID: 12}},
		{"a key", Origin{Kernel: 1}, Origin{Sent: 1, Passed: true}},
		{"a key that was passed on", Origin{Sent: 1, Passed: true}, Origin{Sent: 1, Passed: true}},
		{"unnamed", Origin{Sent: 1, Unnamed: true}, Origin{Sent: 1, Unnamed: true}},
		{"unknown", Origin{}, Origin{Sent: 1, Unnamed: true}},
	} {
		fd, err := unix.PidfdOpen(os.Getpid(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.PidfdSendSignal(fd, syscall.SIGUSR2, tt.origin.Siginfo(syscall.SIGUSR2), 0); err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
		select {
		case <-signals:
		case <-time.After(long):
			t.Fatal("the signal has not arrived")
		}
		if got := w.Take(syscall.SIGUSR2); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
