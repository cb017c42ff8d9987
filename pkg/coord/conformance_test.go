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
		return clientHarness(time.Second, func(context.Context, string) (net.Conn, error) {
			here, there := net.Pipe()
			s.ServeConn(there)
			return here, nil
		}, "store")
	})
}

// TestGroupClientConforms runs all cases with clients that know three addresses. The store is at the last one.
func TestGroupClientConforms(t *testing.T) {
	coordtest.RunInBubble(t, func(t testing.TB) coordtest.Harness {
		t.Helper()
		members := map[string]*coord.Server{}
		for addr, named := range map[string]string{"a:1": "c:1", "b:1": "", "c:1": ""} {
			opts := coord.ServerOptions{Secret: []byte("secret"), InstanceID: "group"}
			if addr != "c:1" {
				opts.Elsewhere = func() (string, bool) { return named, true }
			}
			s := coord.NewServer(opts)
			t.Cleanup(func() { _ = s.Close() })
			members[addr] = s
		}
		return clientHarness(time.Second, func(_ context.Context, addr string) (net.Conn, error) {
			here, there := net.Pipe()
			members[addr].ServeConn(there)
			return here, nil
		}, "a:1", "b:1", "c:1")
	})
}

// TestClientConformsOverTCP leaves out the cases that wait for the end of a session.
func TestClientConformsOverTCP(t *testing.T) {
	_, addr := coord.StartServer(t, coord.ServerOptions{Secret: []byte("secret")})
	h := clientHarness(time.Hour, func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}, "store")
	h.TTL = 0
	coordtest.Run(t, h)
}

// clientHarness returns a harness of clients that know addrs, each with networks of its own.
func clientHarness(
	ttl time.Duration, connect func(ctx context.Context, addr string) (net.Conn, error), addrs ...string,
) coordtest.Harness {
	var mu sync.Mutex
	networks := map[coord.Store]map[string]*coord.FaultyNetwork{}
	each := func(s coord.Store, do func(*coord.FaultyNetwork)) {
		mu.Lock()
		defer mu.Unlock()
		for _, network := range networks[s] {
			do(network)
		}
	}
	return coordtest.Harness{
		TTL: ttl,
		Open: func(t testing.TB) coord.Store {
			t.Helper()
			to := map[string]*coord.FaultyNetwork{}
			for _, addr := range addrs {
				to[addr] = coord.NewFaultyNetwork(func(ctx context.Context) (net.Conn, error) { return connect(ctx, addr) })
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c, err := coord.Dial(ctx, coord.DialOptions{
				Addr: addrs[0], Conn: to[addrs[0]].Dial, Secret: []byte("secret"), TTL: ttl,
				Adapt: func(other *coord.DialOptions) { other.Conn = to[other.Addr].Dial },
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(addrs) > 1 {
				c.SetAddrs(addrs)
			}
			mu.Lock()
			defer mu.Unlock()
			networks[c] = to
			return c
		},
		Cut:   func(s coord.Store) { each(s, (*coord.FaultyNetwork).Cut) },
		Heal:  func(s coord.Store) { each(s, (*coord.FaultyNetwork).Heal) },
		Break: func(s coord.Store) { each(s, (*coord.FaultyNetwork).Reset) },
		Kill:  func(s coord.Store) { each(s, (*coord.FaultyNetwork).Kill) },
	}
}
