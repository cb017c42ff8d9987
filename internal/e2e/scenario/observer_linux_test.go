package scenario

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// observer watches the processes of workers from outside. A stopped or hanging process writes nothing, but it is
// alive.
type observer struct {
	t    testing.TB
	mark string

	mu    sync.Mutex
	lives map[process]life
	fds   map[process]int // pidfds of the processes in lives that have not ended
	other map[int]bool    // ids of processes of other jobs
	asked float64         // time at which other was rebuilt: process ids are reused
}

// process identifies a process for good, although process ids are reused.
type process struct {
	pid   int
	start string // in ticks since boot
}

const (
	// lookEvery is the interval between looks at known processes, scanEvery the interval between scans for new ones.
	lookEvery = 10 * time.Millisecond
	scanEvery = 50 * time.Millisecond
	// askEvery is the interval after which the processes in other are checked again. No id is reused sooner.
	askEvery = time.Second
)

// observe watches the processes with that mark in their environment until the test ends.
func observe(t testing.TB, mark string) *observer {
	t.Helper()
	own, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		testenv.Missing(t, "needs pidfd_open: %v", err)
	}
	_ = unix.Close(own)
	o := &observer{t: t, mark: mark, lives: map[process]life{}, fds: map[process]int{}, other: map[int]bool{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { o.run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		for _, fd := range o.fds {
			_ = unix.Close(fd)
		}
	})
	return o
}

func (o *observer) run(ctx context.Context) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	scanned := 0.0
	for {
		if now := monotonic(); now-scanned > scanEvery.Seconds() {
			scanned = now
			o.scan()
		} else {
			o.look()
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// seen returns what has been proven so far.
func (o *observer) seen() []life {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Values(o.lives))
}

// alive returns the processes that the last scan has found and that are still alive.
func (o *observer) alive() []life {
	o.look()
	o.mu.Lock()
	defer o.mu.Unlock()
	var there []life
	for p := range o.fds {
		there = append(there, o.lives[p])
	}
	return there
}

// look looks again at the known processes. A process that exists after a moment was alive at that moment.
func (o *observer) look() {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := monotonic()
	processes := slices.Collect(maps.Keys(o.fds))
	ended := make([]unix.PollFd, len(processes))
	for i, p := range processes {
		ended[i] = unix.PollFd{Fd: int32(o.fds[p]), Events: unix.POLLIN}
	}
	_, err := unix.Poll(ended, 0)
	for errors.Is(err, unix.EINTR) {
		_, err = unix.Poll(ended, 0)
	}
	if err != nil {
		o.t.Error(err)
		return
	}
	for i, p := range processes {
		if ended[i].Revents != 0 {
			_ = unix.Close(o.fds[p])
			delete(o.fds, p)
			continue
		}
		l := o.lives[p]
		l.last = max(l.last, now)
		o.lives[p] = l
	}
}

// scan looks for new processes too.
func (o *observer) scan() {
	o.look()
	o.mu.Lock()
	defer o.mu.Unlock()
	now := monotonic()
	if now-o.asked > askEvery.Seconds() {
		clear(o.other)
		o.asked = now
	}
	proc, err := os.Open("/proc")
	if err != nil {
		return
	}
	names, _ := proc.Readdirnames(-1)
	_ = proc.Close()
	watched := map[int]bool{}
	for p := range o.fds {
		watched[p.pid] = true
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || o.other[pid] || watched[pid] {
			continue
		}
		p := process{pid, hosts.StartOf(pid)}
		if _, known := o.lives[p]; known || p.start == "" {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join("/proc", name, "environ"))
		if len(environ) > 0 && !bytes.Contains(environ, []byte(o.mark)) {
			o.other[pid] = true
			continue
		}
		l, ok := lifeOf(pid, environ)
		if !ok {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) { // it has ended
			continue
		}
		if err != nil {
			o.t.Error(err)
			return
		}
		if hosts.StartOf(pid) == p.start {
			o.fds[p] = fd
		} else { // it has ended, and the id may belong to another process
			_ = unix.Close(fd)
		}
		// The process began before the scan found it and can end after the scan began: nothing more is proven until
		// the next look.
		l.first, l.last = monotonic(), now
		o.lives[p] = l
	}
}

// lifeOf reads a worker's place from its environment. Agents, and processes that will become workers, have none.
func lifeOf(pid int, environ []byte) (life, bool) {
	l := life{Kind: "seen", PID: pid}
	numbers := map[string]*int{
		"ELASTICRUN_ROUND": &l.Round, "TORCHELASTIC_RESTART_COUNT": &l.Restart, "WORLD_SIZE": &l.World, "RANK": &l.Rank,
		"LOCAL_RANK": &l.Local, "GROUP_RANK": &l.Group, "MASTER_PORT": &l.Port,
	}
	found := 0
	for variable := range strings.SplitSeq(string(environ), "\x00") {
		name, value, _ := strings.Cut(variable, "=")
		switch n, err := strconv.Atoi(value); {
		case numbers[name] != nil && err == nil:
			*numbers[name] = n
			found++
		case name == "MASTER_ADDR":
			l.Addr = value
		case name == "TORCHELASTIC_RUN_ID":
			l.Job = value
		case name == "HOSTNAME":
			l.Host = value
		}
	}
	return l, found == len(numbers)
}
