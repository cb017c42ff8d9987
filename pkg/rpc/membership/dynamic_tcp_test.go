package membership

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
)

// serveStore runs a TCPStore server and returns a function that connects a client to it.
func serveStore(t *testing.T) func() kvstore.Store {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := tcpstore.NewServer(tcpstore.ServerOptions{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-served; !errors.Is(err, kvstore.ErrClosed) {
			t.Error(err)
		}
	})
	return func() kvstore.Store {
		client, err := tcpstore.Dial(t.Context(), listener.Addr().String(), tcpstore.ClientOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		return client
	}
}

func TestDynamicRandomOverTCP(t *testing.T) {
	g := newGroup(t, serveStore(t))
	g.opts, g.net.failFast = Options{}, true
	run(g, 7, testenv.Repeat(t, 25, 1000))
}

// Members join one after another.
func TestDynamicManyOverTCP(t *testing.T) {
	g := newGroup(t, serveStore(t))
	g.opts = Options{}
	var durations []time.Duration
	n := testenv.Repeat(t, 24, 64)
	for i := range n {
		start := time.Now()
		g.join(fmt.Sprintf("w%d", i))
		durations = append(durations, time.Since(start))
		g.checkViews("a join")
	}
	lastQuarter := durations[n*3/4:]
	slices.Sort(lastQuarter)
	t.Logf("the last %d of %d joins: median %v, longest %v",
		len(lastQuarter), n, lastQuarter[len(lastQuarter)/2], lastQuarter[len(lastQuarter)-1])
	for _, h := range slices.Clone(g.live[:n/2]) {
		g.leave(h)
		g.checkViews("a leave")
	}
}

// Members join and leave at the same time.
func TestDynamicManyAtOnceOverTCP(t *testing.T) {
	g := newGroup(t, serveStore(t))
	g.opts = Options{}
	start := time.Now()
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
	t.Logf("%d joins at once: %v", n, time.Since(start))
	slices.SortFunc(hosts, func(a, b *host) int { return a.Self().ID - b.Self().ID })
	g.live = hosts
	g.waitViews("the joins")
	for _, h := range hosts[:n/2] {
		go func() { done <- h.Leave(t.Context()) }()
	}
	for range hosts[:n/2] {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	g.live = hosts[n/2:]
	g.waitViews("the leaves")
}
