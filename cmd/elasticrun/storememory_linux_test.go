package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// peakRSS returns the most memory that the store's process has had, in bytes.
func (s *storeProcess) peakRSS() int64 {
	s.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return kib << 10
}

// A client of the store's agents' side cannot make the process larger than --max-memory allows. It gets an error that
// says why; earlier clients continue. The process's own part is below 24 MiB.
func TestStoreMemoryIsBounded(t *testing.T) {
	const memory, own = 32 << 20, 24 << 20
	for _, tt := range []struct {
		name string
		fill func(t *testing.T, addr string) error
	}{
		{"large keys", fillWithKeys},
		{"many runs", fillWithRuns},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := startStore(t, "--max-memory=32MiB", "--log-level=error")
			first, err := coord.Dial(t.Context(), coord.DialOptions{Addr: s.addr, RunID: "first", TTL: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.fill(t, s.addr); err == nil || !strings.Contains(err.Error(), "full") &&
				!strings.Contains(err.Error(), "as many as its memory allows") {
				t.Errorf("a client that fills the store gets: %v", err)
			}
			if err := putStatus(t, first, "first", 1000); err != nil {
				t.Errorf("who was there before: %v", err)
			}
			if rss := s.peakRSS(); rss > memory+own {
				t.Errorf("the store has had %d MiB, want %d at most", rss>>20, (memory+own)>>20)
			} else {
				t.Logf("the store has had %d MiB", rss>>20)
			}
			_ = first.Close(t.Context())
		})
	}
}

// putStatus writes the status of an agent of a run, the one large value that it may write.
func putStatus(t *testing.T, agent *coord.Client, runID string, size int) error {
	t.Helper()
	op := coord.Op{Key: runID + "/status/" + string(agent.Session()), Value: make([]byte, size), Owned: true}
	_, err := agent.Commit(t.Context(), nil, []coord.Op{op})
	return err
}

// fillWithKeys commits 75 MB by as many agents, and returns the first error.
func fillWithKeys(t *testing.T, addr string) (first error) {
	t.Helper()
	for range 75 {
		agent, err := coord.Dial(t.Context(), coord.DialOptions{Addr: addr, RunID: "greedy", TTL: time.Hour})
		if err == nil {
			t.Cleanup(func() { _ = agent.Close(context.WithoutCancel(t.Context())) })
			err = putStatus(t, agent, "greedy", 1<<20-100)
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// fillWithRuns begins 1,500 runs, and returns the first error.
func fillWithRuns(t *testing.T, addr string) (first error) {
	t.Helper()
	for i := range 1500 {
		agent, err := coord.Dial(t.Context(), coord.DialOptions{Addr: addr, RunID: fmt.Sprint("run", i), TTL: time.Hour})
		if err != nil {
			if busy, ok := errors.AsType[*coord.DialError](err); !ok || busy.Obstacle != coord.ObstacleBusy {
				t.Fatal(err)
			}
			first = err
			continue
		}
		_ = agent.Close(t.Context())
	}
	return first
}
