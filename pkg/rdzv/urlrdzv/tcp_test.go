package urlrdzv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/tcplisten"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// aPort names a port for a worker to host on: one that was free a moment ago.
func aPort(t *testing.T) int {
	t.Helper()
	ln, err := tcplisten.Listen(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// agentStore is a store as an agent hosts it, and the variables that it gives its workers.
func agentStore(t *testing.T) map[string]string {
	t.Helper()
	ln, err := tcplisten.Listen(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	s := rdzv.ServeWorkerStore(ln, tcpstore.ServerOptions{})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return map[string]string{
		"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": strconv.Itoa(s.Port()), "TORCHELASTIC_USE_AGENT_STORE": "True",
	}
}

// work is what a worker does with what it has found.
func work(ctx context.Context, r *Result) (string, error) {
	err := kvstore.Barrier(ctx, r.Store, kvstore.BarrierOptions{
		WorldSize: r.WorldSize, Prefix: "start",
		Trace: &kvstore.Trace{Rank: r.Rank, Decode: strconv.Itoa},
	})
	if err != nil {
		return "", err
	}
	all, err := kvstore.Synchronize(ctx, r.Store, fmt.Appendf(nil, "data of %d", r.Rank), r.Rank, r.WorldSize, "data", time.Minute)
	if err != nil {
		return "", err
	}
	var data []string
	for _, value := range all {
		data = append(data, string(value))
	}
	return fmt.Sprintf("rank %d of %d has %s", r.Rank, r.WorldSize, strings.Join(data, ", ")), nil
}

// processes runs a worker for each rank, the last one first, each as a process of its own would. url and vars get the
// rank.
func processes(t *testing.T, worldSize int, url func(rank int) string, vars func(rank int) map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for rank := worldSize - 1; rank >= 0; rank-- {
		wg.Go(func() {
			r, err := meet(ctx, url(rank), vars(rank))
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
				return
			}
			got, err := work(ctx, r)
			want := fmt.Sprintf("rank %d of %d has data of 0, data of 1", rank, worldSize)
			if err != nil || !strings.HasPrefix(got, want) {
				t.Errorf("rank %d: %q, %v", rank, got, err)
			}
			if err := r.Close(); err != nil {
				t.Errorf("rank %d: close: %v", rank, err)
			}
		})
	}
	wg.Wait()
}

func none(int) map[string]string { return nil }

func TestTCP(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]"} {
		port := aPort(t)
		if l, err := net.Listen("tcp", host+":0"); err != nil {
			t.Logf("not on %s: %v", host, err)
			continue
		} else if l.Close() != nil {
			t.Fatal("close")
		}
		for range 2 { // the host gives the port back
			processes(t, 5, func(rank int) string {
				return fmt.Sprintf("tcp://%s:%d?rank=%d&world_size=5&use_libuv=0", host, port, rank)
			}, none)
		}
	}
}

// Any rank may be a client of the first generation, for it may be torch 1.x that hosts.
func TestTCPFirstGeneration(t *testing.T) {
	port := aPort(t)
	processes(t, 3, func(rank int) string {
		return fmt.Sprintf("tcp://127.0.0.1:%d?rank=%d&world_size=3&generation=%d", port, rank, 1+rank%2)
	}, none)
}

func TestEnv(t *testing.T) {
	port := strconv.Itoa(aPort(t))
	vars := func(rank int) map[string]string {
		return map[string]string{
			"RANK": strconv.Itoa(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
			"TORCHELASTIC_USE_AGENT_STORE": "False",
		}
	}
	processes(t, 3, func(int) string { return "env://" }, vars)
	// The query counts before the environment, also for who hosts.
	processes(t, 2, func(rank int) string { return fmt.Sprintf("env://?rank=%d&world_size=2", rank) }, vars)
}

// Under an agent nobody hosts, and nobody waits: rank 0 may be alone so far.
func TestEnvUnderAgent(t *testing.T) {
	vars := agentStore(t)
	r, err := meet(t.Context(), "env://?rank=0&world_size=2", vars)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	late, err := meet(t.Context(), "env://?rank=1&world_size=2", vars)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if err := r.Store.Set(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	if ok, err := late.Store.Check(t.Context(), "k"); err != nil || !ok {
		t.Errorf("rank 1 sees rank 0's key: %v, %v", ok, err)
	}
	if n, err := r.Store.NumKeys(t.Context()); err != nil || n != 2 { // init/ too
		t.Errorf("%d keys, %v", n, err)
	}
	// At the agent's own address tcp:// is no other.
	url := fmt.Sprintf("tcp://127.0.0.1:%s?rank=0&world_size=2", vars["MASTER_PORT"])
	r, err = meet(t.Context(), url, vars)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
}

// The agent's store is that at its own address: at another one rank 0 hosts.
func TestTCPElsewhereUnderAgent(t *testing.T) {
	vars := agentStore(t)
	port := aPort(t)
	processes(t, 2, func(rank int) string {
		return fmt.Sprintf("tcp://127.0.0.1:%d?rank=%d&world_size=2", port, rank)
	}, func(int) map[string]string { return vars })
	for name, value := range map[string]string{"TORCHELASTIC_USE_AGENT_STORE": "true", "MASTER_ADDR": "localhost"} {
		other := maps.Clone(vars)
		other[name] = value
		// Rank 0 wants to host where the agent does.
		url := fmt.Sprintf("tcp://127.0.0.1:%s?rank=0&world_size=1", vars["MASTER_PORT"])
		_, err := meet(t.Context(), url, other)
		var taken *rdzv.ListenError
		if !errors.As(err, &taken) || !errors.Is(err, syscall.EADDRINUSE) || !errors.Is(err, rdzv.ErrConnection) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}

// Rank 0 waits for all workers, and the error tells for how many; the port is free again after that.
func TestHostWaitsForAll(t *testing.T) {
	port := aPort(t)
	url := func(rank int) string { return fmt.Sprintf("tcp://127.0.0.1:%d?rank=%d&world_size=3", port, rank) }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := meet(ctx, url(0), nil); !errors.Is(err, context.Canceled) {
			t.Errorf("rank 0: %v", err)
		}
	})
	r, err := meet(t.Context(), url(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := r.Store.Check(t.Context(), "k"); err != nil || ok {
		t.Errorf("Check = %v, %v", ok, err)
	}
	cancel()
	wg.Wait()
	r.Close()

	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = meet(ctx, url(0), nil)
	if !errors.Is(err, rdzv.ErrTimeout) || errors.Is(err, rdzv.ErrConnection) || !strings.Contains(err.Error(), "3 workers") {
		t.Errorf("rank 0 alone: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err = meet(ctx, url(1), nil); !errors.Is(err, rdzv.ErrConnection) {
		t.Errorf("rank 1 without a host: %v", err)
	}
}

// In one process, several rendezvous at one port share the server, which lives as long as the last of them.
func TestHostIsShared(t *testing.T) {
	s := NewSchemes(Options{Lookup: environ(nil)})
	url := fmt.Sprintf("tcp://127.0.0.1:%d?rank=0&world_size=1", aPort(t))
	var results []*Result
	for range 2 {
		r, err := s.Rendezvous(url)
		if err != nil {
			t.Fatal(err)
		}
		result, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, result)
	}
	if err := results[0].Store.Set(t.Context(), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second Close changes nothing
		if err := results[0].Close(); err != nil {
			t.Error(err)
		}
	}
	if got, err := results[1].Store.Get(t.Context(), "k"); err != nil || string(got) != "v" {
		t.Errorf("the second reads %q, %v", got, err)
	}
	if err := results[1].Close(); err != nil {
		t.Error(err)
	}
	again, err := s.Rendezvous(url) // nothing is left of the first server
	if err != nil {
		t.Fatal(err)
	}
	r, err := again.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if ok, err := r.Store.Check(t.Context(), "k"); err != nil || ok {
		t.Errorf("the new server has the old one's key: %v, %v", ok, err)
	}
}
