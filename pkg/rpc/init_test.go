package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv/urlrdzv"
	"github.com/elasticrun/elasticrun/pkg/rpc/membership"
)

// Init reports invalid input before it connects to anything: this store would block forever.
func TestInitBadInput(t *testing.T) {
	fns := table(t)
	never := Common{InitMethod: "file:///nowhere/f?rank=0&world_size=2"}
	for _, tc := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, `init RPC as : ` + nameError("")},
		{Config{Name: "a b"}, `init RPC as a b: ` + nameError("a b")},
		{Config{Name: "w", WorldSize: -1}, `init RPC as w: world size -1: must be at least 1, or 0 for a dynamic group`},
		{
			Config{Name: "w", Functions: []*Functions{fns, nil, fns}},
			`init RPC as w: register function echo: the name is taken; each function needs its own name`,
		},
		{Config{Name: "w", Backend: "X"}, `init RPC as w: RPC backend "X" is not registered; known: GRPC`},
		{
			Config{Name: "w", Rank: 2, WorldSize: 2},
			errText(fmt.Errorf("init RPC as w: %w", &membership.RankError{Worker: "w", Rank: 2, WorldSize: 2})),
		},
		{
			Config{Name: "w", Options: memoryOptions{never}},
			`init RPC as w: ` + errText(&OptionsTypeError{Backend: GRPC, Got: "rpc.memoryOptions", Want: "*rpc.GRPCOptions"}),
		},
		{
			Config{Name: "w", Options: &GRPCOptions{MaxPayload: -1}},
			`init RPC as w: option MaxPayload -1: must be from 1 to 2146435072 bytes, or 0 for 67108864`,
		},
		{
			Config{Name: "w", Lookup: environ(map[string]string{envGPUCount: "x"})},
			`init RPC as w: ELASTICRUN_GPU_COUNT="x": must be a whole number of GPUs, 0 or more; elasticrun sets it if it is unset`,
		},
		{
			Config{Name: "w", Options: &GRPCOptions{Common: Common{InitMethod: "x"}}},
			`init RPC as w: rendezvous URL "x": no scheme; write one such as env://`,
		},
		{
			Config{Name: "w", Lookup: environ(nil)},
			`init RPC as w: env:// rendezvous: environment variable RANK expected, but not set: elasticrun and torchrun set it`,
		},
	} {
		if tc.cfg.Options == nil && tc.cfg.Lookup == nil {
			tc.cfg.Options = &GRPCOptions{Common: never}
		}
		if tc.cfg.Lookup == nil {
			tc.cfg.Lookup = environ(nil)
		}
		if g, err := Init(t.Context(), tc.cfg); g != nil || errText(err) != tc.want {
			t.Errorf("got  %v\nwant %s", err, tc.want)
		}
	}
}

// InitFromEnv reads the environment of the process.
func TestInitFromEnvReadsTheEnvironment(t *testing.T) {
	t.Setenv("RANK", "4")
	t.Setenv("WORLD_SIZE", "2")
	_, err := InitFromEnv(t.Context(), "w")
	want := `init RPC as w: env:// rendezvous: RANK="4": must be at least 0 and below the world size, 2`
	if errText(err) != want {
		t.Errorf("got %v", err)
	}
	t.Setenv(envMaxPayload, "x")
	_, err = InitFromEnv(t.Context(), "w")
	want = `init RPC as w: ELASTICRUN_RPC_MAX_PAYLOAD="x": must be a whole number of bytes from 1 to 2146435072`
	if errText(err) != want {
		t.Errorf("got %v", err)
	}
}

// The URL defines the store, the rank and the world size. Configured values must agree with it.
func TestInitByURL(t *testing.T) {
	for _, tc := range []struct {
		rank, worldSize int // configured
		what            string
	}{
		{},
		{rank: 1},
		{rank: 1, worldSize: 2},
		{rank: 0, worldSize: 2, what: "rank"},
		{rank: 3, what: "rank"},
		{rank: 1, worldSize: 3, what: "world size"},
	} {
		m := newMemoryBackend()
		close(m.full)
		m.full = make(chan struct{}) // worker0 has not joined yet
		path := filepath.Join(t.TempDir(), "f")
		url := "file://" + path + "?world_size=2&rank="
		registry := m.registry(t)
		join := func(name string, rank string, given Config) (*Group, error) {
			given.Name, given.Registry, given.Backend = name, registry, "MEMORY"
			given.Options, given.Functions = memoryOptions{Common{InitMethod: url + rank}}, []*Functions{table(t)}
			return Init(t.Context(), given)
		}
		if tc.what != "" {
			_, err := join("worker1", "1", Config{Rank: tc.rank, WorldSize: tc.worldSize})
			e := (*PlaceError)(nil)
			if !errors.As(err, &e) || e.What != tc.what || !strings.HasSuffix(err.Error(), ": omit Rank and WorldSize, or use the same values") {
				t.Errorf("%+v: %v", tc, err)
			}
			continue
		}
		var first *Group
		var wg sync.WaitGroup
		wg.Go(func() {
			var err error
			if first, err = join("worker0", "0", Config{}); err != nil {
				t.Error(err)
			}
		})
		g, err := join("worker1", "1", Config{Rank: tc.rank, WorldSize: tc.worldSize})
		wg.Wait()
		if err != nil || first == nil {
			t.Fatalf("%+v: %v", tc, err)
		}
		if g.Self() != (WorkerInfo{Name: "worker1", ID: 1}) {
			t.Errorf("%+v: self is %v", tc, g.Self())
		}
		if got, err := sum.Call(t.Context(), g, "worker0", []float64{2}); got != 2 || err != nil {
			t.Errorf("%+v: sum = %v, %v", tc, got, err)
		}
		for _, g := range []*Group{g, first} {
			if err := g.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
		// The last member that closes the file store removes the file. So all stores were closed.
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%+v: the store's file: %v", tc, err)
		}
	}
}

// Init opens the store of a registered scheme, and closes it with the group.
func TestInitByRegisteredScheme(t *testing.T) {
	schemes, closed := urlrdzv.NewSchemes(urlrdzv.Options{}), false
	err := schemes.Register("own", func(_ context.Context, url string) (*urlrdzv.Result, error) {
		if url != "own://here" {
			t.Errorf("the handler got %q", url)
		}
		return &urlrdzv.Result{
			Store: kvstore.NewHashStore(), WorldSize: 1, Release: func() error { closed = true; return nil },
		}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	g, err := Init(t.Context(), Config{
		Name: "worker0", Schemes: schemes, Registry: newMemoryBackend().registry(t), Backend: "MEMORY",
		Options: memoryOptions{Common{InitMethod: "own://here"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Shutdown(t.Context()); err != nil || !closed {
		t.Errorf("Shutdown: %v; the store was closed: %t", err, closed)
	}
}

// After a failure of the backend nothing is left: the port of rank 0 is free again.
func TestInitFailureLeavesNothing(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	m := newMemoryBackend()
	m.initErr = errTest
	_, err = Init(t.Context(), Config{
		Name: "w", Registry: m.registry(t), Backend: "MEMORY",
		Options: memoryOptions{Common{InitMethod: fmt.Sprintf("tcp://%s?rank=0&world_size=1", addr)}},
	})
	if !errors.Is(err, errTest) {
		t.Fatalf("Init: %v", err)
	}
	if ln, err = net.Listen("tcp", addr); err != nil {
		t.Fatalf("the port is still in use: %v", err)
	}
	ln.Close()
}

// Init has a default limit, and keeps the deadline of its context.
func TestInitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, own := range []time.Duration{0, time.Hour} {
			ctx, want := t.Context(), InitTimeout
			if own > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, own)
				defer cancel()
				want = own
			}
			begun := time.Now()
			_, err := Init(ctx, Config{
				Name: "worker0", WorldSize: 2, Store: kvstore.NewHashStore(), Registry: newMemoryBackend().registry(t), Backend: "MEMORY",
			})
			if took := time.Since(begun); !errors.Is(err, ErrTimeout) || took != want {
				t.Errorf("%v: %v after %v", own, err, took)
			}
			if own == 0 && !strings.HasSuffix(err.Error(), "the group did not form within 5m; to wait longer, pass a context with a deadline") {
				t.Errorf("the error: %v", err)
			}
		}
	})
}

// A call can arrive before Init has returned; its function sees the group nevertheless. If Init fails, the call is
// refused.
func TestEarlyCall(t *testing.T) {
	functions, err := mergeFunctions([]*Functions{table(t)})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		for _, g := range []*Group{newGroup(t.Context(), &memoryAgent{self: WorkerInfo{Name: "me", ID: 3}}, 0, nil), nil} {
			d := newDispatcher(functions)
			answers, errs := make(chan []byte, 1), make(chan error, 1)
			go func() {
				payload, _ := whoami.encode("me", struct{}{})
				answer, err := d.handle(t.Context(), WorkerInfo{Name: "other"}, "whoami", payload)
				answers <- answer
				errs <- err
			}()
			ended, cancel := context.WithCancelCause(t.Context())
			cancel(errTest)
			if _, err := d.handle(ended, WorkerInfo{}, "whoami", nil); !errors.Is(err, errTest) {
				t.Errorf("a call that ends early: %v", err)
			}
			synctest.Wait()
			if len(answers) > 0 {
				t.Error("the call did not wait for Init")
			}
			d.setGroup(g)
			answer, err := <-answers, <-errs
			if g == nil {
				if !errors.Is(err, ErrShutdown) {
					t.Errorf("without a group: %v", err)
				}
				continue
			}
			if got, _ := whoami.resp.decode(answer); got != [2]string{"me (id 3)", "other (id 0)"} || err != nil {
				t.Errorf("whoami = %q, %v", got, err)
			}
		}
	})
}
