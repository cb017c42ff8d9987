package elastic

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// localAgents are agents of one run, each of which opens its session at a socket.
type localAgents struct {
	t   *testing.T
	all []*C10d
}

// open returns the access of one more agent, or the error of its only attempt.
func (l *localAgents) open(socket string) (*C10d, error) {
	l.t.Helper()
	a := &C10d{RunID: uniqueRunID(l.t), Version: "test", TTL: time.Minute, Socket: socket, Logger: zerolog.Nop()}
	_, err := a.attemptLocal(l.t.Context(), true)
	if err == nil {
		l.all = append(l.all, a)
	}
	return a, err
}

// close ends the agents, the hosts last.
func (l *localAgents) close() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, a := range l.all {
		if a.client != nil {
			_ = a.client.Close(ctx) // the host may be gone
		}
	}
	for _, a := range l.all {
		if a.host == nil {
			continue
		}
		if err := a.host.close(a.TTL); err != nil {
			l.t.Error(err)
		}
	}
	l.all = nil
}

// newLocalAgents returns no agents yet, and the path of a socket for them.
func newLocalAgents(t *testing.T) (*localAgents, string) {
	t.Helper()
	l := &localAgents{t: t}
	t.Cleanup(l.close)
	return l, filepath.Join(t.TempDir(), "s")
}

// Of agents that come at the same time exactly one hosts the store, and all others find it. Nothing is left at the end.
func TestLocalAgentsMeet(t *testing.T) {
	t.Parallel()
	l, socket := newLocalAgents(t)
	for range 50 {
		agents := make([]*C10d, 4)
		errs := make([]error, len(agents))
		var opening sync.WaitGroup
		for i := range agents {
			agents[i] = &C10d{RunID: uniqueRunID(t), Version: "test", TTL: time.Minute, Socket: socket, Logger: zerolog.Nop()}
			opening.Go(func() { _, errs[i] = agents[i].Open(t.Context()) })
		}
		opening.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		l.all = agents
		var hosts []*C10d
		for _, a := range agents {
			if a.HostsAlone() { // so others need it at the exit barrier
				hosts = append(hosts, a)
			}
		}
		if len(hosts) != 1 || hosts[0].hosted().server.Sessions() != len(agents)-1 {
			t.Fatalf("%d of the agents host a store", len(hosts))
		}
		l.close()
	}
	if left, err := os.ReadDir(filepath.Dir(socket)); err != nil || len(left) > 0 {
		t.Errorf("%v, %v are left in the folder", err, left)
	}
}

// A host that was killed leaves a socket that nobody serves, and a lock that nobody holds.
func TestLocalSocketOfKilledHost(t *testing.T) {
	t.Parallel()
	l, socket := newLocalAgents(t)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	if err := errors.Join(ln.Close(), os.WriteFile(socket+lockSuffix, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if a, err := l.open(socket); err != nil || a.hosted() == nil {
		t.Errorf("the agent does not host: %v", err)
	}
	if a, err := l.open(socket); err != nil || a.hosted() != nil {
		t.Errorf("the second agent is no client: %v", err)
	}
}

// A new host learns of its predecessor at the socket, also where it does not see the marker in the folder that all runs
// share: in a container with another /dev/shm, or in another namespace.
func TestLocalPredecessor(t *testing.T) {
	t.Parallel()
	l, socket := newLocalAgents(t)
	host, err := l.open(socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.open(socket); err != nil { // an agent that outlives its host
		t.Fatal(err)
	}
	if err := host.host.close(host.TTL); err != nil {
		t.Fatal(err)
	}
	l.all = l.all[1:]
	// Another run id stands for another folder of markers: it is not part of the name of the marker at the socket.
	next := &C10d{RunID: rand.Text(), Version: "test", TTL: time.Minute, Socket: socket, Logger: zerolog.Nop()}
	if _, err := next.attemptLocal(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	l.all = append(l.all, next)
	h := next.hosted()
	if h == nil || !h.place.fresh.HasPredecessor || h.place.fresh.PredecessorEnd > h.place.fresh.CreatedAt {
		t.Errorf("the next host knows no predecessor: %+v", h)
	}
}

// An agent that has lost its host waits for another one, and does not become the host of a job that it has not begun.
func TestLocalClientDoesNotHost(t *testing.T) {
	t.Parallel()
	l, socket := newLocalAgents(t)
	host, err := l.open(socket)
	if err != nil {
		t.Fatal(err)
	}
	client, err := l.open(socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := host.host.close(host.TTL); err != nil {
		t.Fatal(err)
	}
	l.all = []*C10d{client}
	_, err = client.attempt(t.Context())
	failed, ok := errors.AsType[*coord.DialError](err)
	if !ok || failed.Obstacle != coord.ObstacleRefused { // which bounds the wait of an agent that has finished
		t.Errorf("the client gets %v, want that nobody listens", err)
	}
	client.Forget()
	if _, err := client.attempt(t.Context()); err != nil || client.hosted() == nil {
		t.Errorf("after Forget the agent does not host: %v", err)
	}
}

// Programs that clean temporary folders, and the end of a login, remove files of a running host. There is no second
// host then.
func TestLocalFilesRemoved(t *testing.T) {
	t.Parallel()
	l, socket := newLocalAgents(t)
	if _, err := l.open(socket); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(socket + lockSuffix); err != nil {
		t.Fatal(err)
	}
	if a, err := l.open(socket); err != nil || a.hosted() != nil {
		t.Errorf("without the lock's file: host %v, error %v", a.hosted() != nil, err)
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	var elsewhere *LocalHostError
	if a, err := l.open(socket); !errors.As(err, &elsewhere) || a.hosted() != nil || elsewhere.Socket != socket {
		t.Errorf("without the socket: host %v, error %v", a.hosted() != nil, err)
	}
	if _, err := l.open(filepath.Join(t.TempDir(), "s")); !errors.As(err, &elsewhere) {
		t.Errorf("in another folder: %v", err)
	}
}

// A link in the place of the lock or the socket is not followed, and a folder in which nothing can be made is named.
func TestLocalRefuses(t *testing.T) {
	t.Parallel()
	l, socket := newLocalAgents(t)
	precious := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.WriteFile(precious, []byte("text"), 0o600), os.Symlink(precious, socket+lockSuffix)); err != nil {
		t.Fatal(err)
	}
	var bad *LocalSocketError
	if _, err := l.open(socket); !errors.As(err, &bad) || !errors.Is(err, syscall.ELOOP) {
		t.Errorf("the lock is a link: %v", err)
	}
	if _, err := l.open(filepath.Join(precious, "s")); !errors.As(err, &bad) || !strings.Contains(err.Error(), precious) {
		t.Errorf("the folder is a file: %v", err)
	}
	if err := errors.Join(os.Remove(socket+lockSuffix), os.Symlink(precious, socket)); err != nil {
		t.Fatal(err)
	}
	if a, err := l.open(socket); err != nil || a.hosted() == nil {
		t.Errorf("the socket is a link: %v", err)
	}
	if text, err := os.ReadFile(precious); string(text) != "text" || err != nil {
		t.Errorf("the file that the links name holds %q, %v", text, err)
	}
}
