package membership

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/testenv"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// serveStore runs a TCPStore server, and returns what makes clients of it.
func serveStore(t *testing.T) func() kvstore.Store {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := kvstore.NewServer(kvstore.ServerOptions{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-served; !errors.Is(err, kvstore.ErrClosed) {
			t.Error(err)
		}
	})
	return func() kvstore.Store {
		client, err := kvstore.Dial(t.Context(), listener.Addr().String(), kvstore.ClientOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		return client
	}
}

func TestDynamicRandomOverTCP(t *testing.T) {
	g := newGroup(t, serveStore(t))
	g.opts, g.net.prompt = Options{}, true
	run(g, 7, testenv.Repeat(t, 50, 1000))
}

// TestDynamic64OverTCP has 64 members join one after another.
func TestDynamic64OverTCP(t *testing.T) {
	g := newGroup(t, serveStore(t))
	g.opts = Options{}
	var took []time.Duration
	for i := range 64 {
		began := time.Now()
		g.join(fmt.Sprintf("w%d", i))
		took = append(took, time.Since(began))
		g.exact("a join")
	}
	slices.Sort(took[48:])
	t.Logf("join as the 49th to 64th: median %v, longest %v", took[56], took[63])
	for _, h := range slices.Clone(g.live[:32]) {
		g.leave(h)
		g.exact("a leave")
	}
}

// TestDynamicManyAtOnceOverTCP has members join and leave all at the same time.
func TestDynamicManyAtOnceOverTCP(t *testing.T) {
	g := newGroup(t, serveStore(t))
	g.opts = Options{}
	began := time.Now()
	const n = 32
	hosts := make([]*host, n)
	for i := range hosts {
		hosts[i] = g.newHost(fmt.Sprintf("w%d", i))
	}
	done := make(chan error)
	for _, h := range hosts {
		go func() { done <- h.Join(t.Context()) }()
	}
	for range hosts {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d joins at once: %v", n, time.Since(began))
	slices.SortFunc(hosts, func(a, b *host) int { return a.Self().ID - b.Self().ID })
	g.live = hosts
	g.converge("the joins")
	for _, h := range hosts[:n/2] {
		go func() { done <- h.Leave(t.Context()) }()
	}
	for range hosts[:n/2] {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	g.live = hosts[n/2:]
	g.converge("the leaves")
}
