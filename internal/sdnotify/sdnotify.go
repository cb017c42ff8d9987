package sdnotify

import (
	"context"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"
)

// States of a service. Any other state has the form NAME=VALUE too.
const (
	Ready    = "READY=1"    // the service has started
	Stopping = "STOPPING=1" // the service ends
	Alive    = "WATCHDOG=1" // the service works
)

// sendTimeout bounds a send to a manager whose socket is full.
const sendTimeout = 5 * time.Second

// Manager is the service manager of this process. A nil Manager is none: its methods do nothing.
type Manager struct {
	socket      string
	timeout     time.Duration // of the watchdog
	sendTimeout time.Duration
}

// Find returns the manager that the environment names, or nil if it names none. env has the signature of
// [os.LookupEnv]. pid is that of this process: if WATCHDOG_PID names another process, the watchdog does not concern
// this one. Find fails if the manager's address or timeout is malformed.
func Find(env func(string) (string, bool), pid int) (*Manager, error) {
	socket, _ := env("NOTIFY_SOCKET")
	if socket == "" {
		return nil, nil //nolint:nilnil // no manager is no error
	}
	if socket[0] != '/' && socket[0] != '@' {
		return nil, fmt.Errorf("NOTIFY_SOCKET=%s: must be an absolute path, or a name after @", socket)
	}
	m := &Manager{socket: socket, sendTimeout: sendTimeout}
	if of, set := env("WATCHDOG_PID"); set && of != strconv.Itoa(pid) {
		return m, nil
	}
	text, set := env("WATCHDOG_USEC")
	if !set {
		return m, nil
	}
	usec, err := strconv.ParseInt(text, 10, 64)
	if err != nil || usec <= 0 {
		return nil, fmt.Errorf("WATCHDOG_USEC=%s: must be a number of microseconds", text)
	}
	m.timeout = time.Duration(min(usec, math.MaxInt64/int64(time.Microsecond))) * time.Microsecond
	return m, nil
}

// WatchdogTimeout returns how long the manager waits for Alive before it considers the service hung; 0 means that it
// does not wait.
func (m *Manager) WatchdogTimeout() time.Duration {
	if m == nil {
		return 0
	}
	return m.timeout
}

// Notify sends states in one message. It waits at most five seconds for a manager whose socket is full.
func (m *Manager) Notify(states ...string) error {
	if m == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.sendTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unixgram", m.socket)
	if err != nil {
		return fmt.Errorf("notify the service manager at NOTIFY_SOCKET=%s: %w", m.socket, err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err = conn.SetWriteDeadline(deadline); err == nil {
		_, err = conn.Write([]byte(strings.Join(states, "\n")))
	}
	if err != nil {
		return fmt.Errorf("notify the service manager at NOTIFY_SOCKET=%s: %w", m.socket, err)
	}
	return nil
}
