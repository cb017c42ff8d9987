package membership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
)

// tcpStores serves a TCPStore on loopback and returns n clients.
func tcpStores(tb testing.TB, n int) []*tcpstore.Client {
	tb.Helper()
	server := tcpstore.NewServer(tcpstore.ServerOptions{})
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	clients := make([]*tcpstore.Client, n)
	tb.Cleanup(func() {
		for _, c := range clients {
			if c != nil {
				c.Close()
			}
		}
		server.Close()
		<-served
	})
	for i := range clients {
		if clients[i], err = tcpstore.Dial(tb.Context(), l.Addr().String(), tcpstore.ClientOptions{}); err != nil {
			tb.Fatal(err)
		}
	}
	return clients
}

// Groups over real connections form, work and shut down.
func TestOverTCPStore(t *testing.T) {
	for _, n := range []int{2, testenv.Repeat(t, 64, 256)} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			clients, records := tcpStores(t, n), members(n)
			part := func(i int) kvstore.Store { return kvstore.NewPrefixStore("rpc/g", clients[i]) }
			start := time.Now()
			results := formAll(ctx, part, records, nil)
			formed := time.Since(start)
			checkFormed(t, results, records)
			start = time.Now()
			var wg sync.WaitGroup
			for i, r := range records {
				wg.Go(func() {
					w := NewWork()
					if err := w.BeginRoot(); err != nil {
						t.Error(err)
					}
					wg.Go(func() { runtime.Gosched(); w.EndRoot() })
					if err := w.Drain(ctx, part(i), r); err != nil {
						t.Errorf("drain of rank %d: %v", i, err)
					}
				})
			}
			wg.Wait()
			t.Logf("%d members: formed in %v, drained in %v",
				n, formed.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
		})
	}
}

// When a member's connection to the store breaks and it sends nothing more, the others name it when their time is over.
func TestMissingOverTCPStore(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		claims bool // it dies after its claim
		dead   int
		want   Step
	}{
		"before it comes":  {false, 3, StepJoin},
		"when it has come": {true, 0, StepReady}, // rank 0, which nobody waits for
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 4
			clients, records := tcpStores(t, n), members(n)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // enough for those that come
			defer cancel()
			if !tc.claims {
				records = slices.Delete(records, tc.dead, tc.dead+1)
			}
			stores := func(i int) kvstore.Store { return clients[i] }
			warm := func(context.Context, []Record) error { return clients[tc.dead].Close() }
			results := formAll(ctx, stores, records, warm)
			for i, end := range results {
				var missing *MissingError
				var failed *FailedError
				switch {
				case tc.claims && i == tc.dead && end.err != nil:
				case errors.As(end.err, &missing) && missing.Step == tc.want &&
					slices.Equal(missing.Ranks, []int{tc.dead}):
				case errors.As(end.err, &failed) &&
					strings.Contains(failed.Text, fmt.Sprintf("not %s: rank %d", tc.want, tc.dead)):
				default:
					t.Errorf("member %d: %v", i, end.err)
				}
			}
		})
	}
}

func BenchmarkFormStatic(b *testing.B) {
	for _, n := range []int{64, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			clients, records := tcpStores(b, n), members(n)
			group := 0
			for b.Loop() {
				group++
				results := formAll(b.Context(), func(i int) kvstore.Store {
					return kvstore.NewPrefixStore(fmt.Sprint("rpc/", group), clients[i])
				}, records, nil)
				for i, end := range results {
					if end.err != nil {
						b.Fatalf("member %d: %v", i, end.err)
					}
				}
			}
		})
	}
}
