package coord_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/coordtest"
)

func TestLocalConforms(t *testing.T) {
	s := coord.NewServer(coord.ServerOptions{})
	t.Cleanup(func() { _ = s.Close() })
	coordtest.Run(t, coordtest.Harness{
		Open: func(t testing.TB) coord.Store {
			t.Helper()
			l, err := s.Local()
			if err != nil {
				t.Fatal(err)
			}
			return l
		},
	})
}

func TestClientConforms(t *testing.T) {
	const ttl = time.Second
	_, addr := coord.StartServer(t, coord.ServerOptions{Secret: []byte("secret")})
	var mu sync.Mutex
	networks := map[coord.Store]*coord.FaultyNetwork{}
	of := func(s coord.Store) *coord.FaultyNetwork {
		mu.Lock()
		defer mu.Unlock()
		return networks[s]
	}
	coordtest.Run(t, coordtest.Harness{
		TTL: ttl,
		Open: func(t testing.TB) coord.Store {
			t.Helper()
			network := coord.NewFaultyNetwork(addr)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			c, err := coord.Dial(ctx, coord.DialOptions{Addr: addr, Conn: network.Dial, Secret: []byte("secret"), TTL: ttl})
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
	})
}
