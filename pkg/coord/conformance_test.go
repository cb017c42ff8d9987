package coord_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/coordtest"
)

func TestLocalConforms(t *testing.T) {
	coordtest.RunInBubble(t, func(t testing.TB) coordtest.Harness {
		t.Helper()
		s := coord.NewServer(coord.ServerOptions{})
		t.Cleanup(func() { _ = s.Close() })
		return coordtest.Harness{
			Open: func(t testing.TB) coord.Store {
				t.Helper()
				l, err := s.Local()
				if err != nil {
					t.Fatal(err)
				}
				return l
			},
		}
	})
}

// TestClientConforms runs all cases over pipes, which need no real time.
func TestClientConforms(t *testing.T) {
	coordtest.RunInBubble(t, func(t testing.TB) coordtest.Harness {
		t.Helper()
		s := coord.NewServer(coord.ServerOptions{Secret: []byte("secret")})
		t.Cleanup(func() { _ = s.Close() })
		return clientHarness(time.Second, func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			s.ServeConn(there)
			return here, nil
		})
	})
}

// TestClientConformsOverTCP leaves out the cases that wait for the end of a session.
func TestClientConformsOverTCP(t *testing.T) {
	_, addr := coord.StartServer(t, coord.ServerOptions{Secret: []byte("secret")})
	h := clientHarness(time.Hour, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	})
	h.TTL, h.KeyTTL = 0, 500*time.Millisecond
	coordtest.Run(t, h)
}

// clientHarness returns a harness of clients, each with a network of its own.
func clientHarness(ttl time.Duration, connect func(context.Context) (net.Conn, error)) coordtest.Harness {
	var mu sync.Mutex
	networks := map[coord.Store]*coord.FaultyNetwork{}
	of := func(s coord.Store) *coord.FaultyNetwork {
		mu.Lock()
		defer mu.Unlock()
		return networks[s]
	}
	return coordtest.Harness{
		TTL: ttl,
		Open: func(t testing.TB) coord.Store {
			t.Helper()
			network := coord.NewFaultyNetwork(connect)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			c, err := coord.Dial(ctx, coord.DialOptions{
				Addr: "store", Conn: network.Dial, Secret: []byte("secret"), TTL: ttl,
			})
			if err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			networks[c] = network
			return c
		},
		Cut:   func(s coord.Store) { of(s).Cut() },
		Heal:  func(s coord.Store) { of(s).Heal() },
		Break: func(s coord.Store) { of(s).Reset() },
		Kill:  func(s coord.Store) { of(s).Kill() },
	}
}
