package rpc_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
	"github.com/elasticrun/elasticrun/pkg/rpc"
)

// testTimeout bounds each wait of a test.
const testTimeout = time.Minute

// startStore serves a TCPStore and returns its address.
func startStore(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := tcpstore.NewServer(tcpstore.ServerOptions{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Close()
		<-served
	})
	return ln.Addr().String()
}

// dialStore connects to a store until the end of the test.
func dialStore(t testing.TB, addr string) *tcpstore.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	client, err := tcpstore.Dial(ctx, addr, tcpstore.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// newStaticGroup forms a static group of n workers in this process, named worker0 and so on, over its own store. They
// are closed at the end of the test.
func newStaticGroup(
	t testing.TB, n int, functions func(rank int) *rpc.Functions, change func(*rpc.Config),
) []*rpc.Group {
	t.Helper()
	addr := startStore(t)
	configs := make([]rpc.Config, n)
	for i := range configs {
		configs[i] = rpc.Config{Name: fmt.Sprintf("worker%d", i), Rank: i, WorldSize: n, Store: dialStore(t, addr)}
		if functions != nil {
			configs[i].Functions = []*rpc.Functions{functions(i)}
		}
		if change != nil {
			change(&configs[i])
		}
	}
	return initAll(t, configs)
}

// initAll calls Init for all configurations concurrently.
func initAll(t testing.TB, configs []rpc.Config) []*rpc.Group {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	groups := make([]*rpc.Group, len(configs))
	var joining errgroup.Group
	for i := range configs {
		joining.Go(func() error {
			var err error
			groups[i], err = rpc.Init(ctx, configs[i])
			return err
		})
	}
	err := joining.Wait()
	t.Cleanup(func() {
		for _, g := range groups {
			if g != nil {
				g.Close()
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return groups
}

// shutdownAll shuts down all groups gracefully and concurrently.
func shutdownAll(t testing.TB, groups []*rpc.Group) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	var leaving errgroup.Group
	for _, g := range groups {
		leaving.Go(func() error { return g.Shutdown(ctx) })
	}
	if err := leaving.Wait(); err != nil {
		t.Error(err)
	}
}
