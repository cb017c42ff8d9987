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

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/internal/tcplisten"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// agentStore starts a store like that of an agent. It returns the variables that the agent gives its workers.
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

// work uses the store with the other workers, and says what this worker has received.
func work(ctx context.Context, r *Result) (string, error) {
	err := kvstore.Barrier(ctx, r.Store, kvstore.BarrierOptions{
		WorldSize: r.WorldSize, Prefix: "start",
		Trace: &kvstore.Trace{Rank: r.Rank},
	})
	if err != nil {
		return "", err
	}
	all, err := kvstore.Synchronize(ctx, r.Store, fmt.Appendf(nil, "data of %d", r.Rank), r.Rank, r.WorldSize, "data",
		time.Minute)
	if err != nil {
		return "", err
	}
	var data []string
	for _, value := range all {
		data = append(data, string(value))
	}
	return fmt.Sprintf("rank %d of %d has %s", r.Rank, r.WorldSize, strings.Join(data, ", ")), nil
}

// runWorkers runs a worker for each rank, the last rank first. Each worker behaves like a process of its own. url and
// vars return the URL and the variables of a rank.
func runWorkers(t *testing.T, worldSize int, url func(rank int) string, vars func(rank int) map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for rank := worldSize - 1; rank >= 0; rank-- {
		wg.Go(func() {
			r, err := rendezvous(ctx, url(rank), vars(rank))
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

// noVars returns no variables.
func noVars(int) map[string]string { return nil }

func TestTCP(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]"} {
		port := testenv.FreePort(t)
		if l, err := net.Listen("tcp", host+":0"); err != nil {
			t.Logf("not on %s: %v", host, err)
			continue
		} else if l.Close() != nil {
			t.Fatal("close")
		}
		for range 2 { // the port is free again after the first time
			runWorkers(t, 5, func(rank int) string {
				return fmt.Sprintf("tcp://%s:%d?rank=%d&world_size=5&use_libuv=0", host, port, rank)
			}, noVars)
		}
	}
}

// Any rank may use protocol version 1, in case torch 1.x hosts the store.
func TestTCPProtocolV1(t *testing.T) {
	port := testenv.FreePort(t)
	runWorkers(t, 3, func(rank int) string {
		return fmt.Sprintf("tcp://127.0.0.1:%d?rank=%d&world_size=3&generation=%d", port, rank, 1+rank%2)
	}, noVars)
}

func TestEnv(t *testing.T) {
	port := strconv.Itoa(testenv.FreePort(t))
	vars := func(rank int) map[string]string {
		return map[string]string{
			"RANK": strconv.Itoa(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
			"TORCHELASTIC_USE_AGENT_STORE": "False",
		}
	}
	runWorkers(t, 3, func(int) string { return "env://" }, vars)
	// The rank in the query also decides who hosts.
	runWorkers(t, 2, func(rank int) string { return fmt.Sprintf("env://?rank=%d&world_size=2", rank) }, vars)
}

// Under an agent no worker hosts the store, and rank 0 does not wait for the others.
func TestEnvUnderAgent(t *testing.T) {
	vars := agentStore(t)
	r, err := rendezvous(t.Context(), "env://?rank=0&world_size=2", vars)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	late, err := rendezvous(t.Context(), "env://?rank=1&world_size=2", vars)
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
	if n, err := r.Store.NumKeys(t.Context()); err != nil || n != 2 { // with init/
		t.Errorf("%d keys, %v", n, err)
	}
	// tcp:// at the agent's own address uses the agent's store too.
	url := fmt.Sprintf("tcp://127.0.0.1:%s?rank=0&world_size=2", vars["MASTER_PORT"])
	r, err = rendezvous(t.Context(), url, vars)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
}

// The agent's store is the one at the agent's address. At another address rank 0 hosts the store.
func TestTCPElsewhereUnderAgent(t *testing.T) {
	vars := agentStore(t)
	port := testenv.FreePort(t)
	runWorkers(t, 2, func(rank int) string {
		return fmt.Sprintf("tcp://127.0.0.1:%d?rank=%d&world_size=2", port, rank)
	}, func(int) map[string]string { return vars })
	for name, value := range map[string]string{"TORCHELASTIC_USE_AGENT_STORE": "true", "MASTER_ADDR": "localhost"} {
		other := maps.Clone(vars)
		other[name] = value
		// Rank 0 tries to host at the agent's address.
		url := fmt.Sprintf("tcp://127.0.0.1:%s?rank=0&world_size=1", vars["MASTER_PORT"])
		_, err := rendezvous(t.Context(), url, other)
		var taken *rdzv.ListenError
		if !errors.As(err, &taken) || !errors.Is(err, syscall.EADDRINUSE) || !errors.Is(err, rdzv.ErrConnection) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}

// Rank 0 waits for all workers. The error says for how many, and the port is free again afterwards.
func TestHostWaitsForAll(t *testing.T) {
	port := testenv.FreePort(t)
	url := func(rank int) string { return fmt.Sprintf("tcp://127.0.0.1:%d?rank=%d&world_size=3", port, rank) }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := rendezvous(ctx, url(0), nil); !errors.Is(err, context.Canceled) {
			t.Errorf("rank 0: %v", err)
		}
	})
	r, err := rendezvous(t.Context(), url(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := r.Store.Check(t.Context(), "k"); err != nil || ok {
		t.Errorf("Check = %v, %v", ok, err)
	}
	cancel()
	wg.Wait()
	r.Close()

	ctx, cancel = context.WithTimeout(t.Context(), time.Second) // enough to begin to wait for the others
	defer cancel()
	_, err = rendezvous(ctx, url(0), nil)
	if !errors.Is(err, rdzv.ErrTimeout) || errors.Is(err, rdzv.ErrConnection) ||
		!strings.Contains(err.Error(), "3 workers") {
		t.Errorf("rank 0 alone: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err = rendezvous(ctx, url(1), nil); !errors.Is(err, rdzv.ErrConnection) {
		t.Errorf("rank 1 without a host: %v", err)
	}
}

// In one process, several rendezvous at one port share a server, which the last of them closes.
func TestHostIsShared(t *testing.T) {
	s := NewSchemes(Options{Lookup: environ(nil)})
	url := fmt.Sprintf("tcp://127.0.0.1:%d?rank=0&world_size=1", testenv.FreePort(t))
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
	for range 2 { // the second Close has no effect
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
	again, err := s.Rendezvous(url) // with a new server
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
