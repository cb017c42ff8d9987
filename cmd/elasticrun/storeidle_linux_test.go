package main

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// Connections without a whole request or handshake do not keep others out of a store that may open few files: the
// oldest are closed. The second connection of a torch 1.13 worker, which never sends anything, stays.
func TestIdleConnectionsGiveWay(t *testing.T) {
	for _, tt := range []struct{ name, first string }{
		{"nothing said", ""},
		{"in the handshake", "\xe5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := startWrappedStore(t, []string{"sh", "-c", `ulimit -n 128; exec "$@"`, "sh"}, "--log-level=error")
			worker, second := s.dial(), s.dial()
			worker.send(add("n", 1))
			worker.sum(1)
			for range 200 {
				nc, err := net.DialTimeout("tcp", s.addr, 10*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				if _, err := nc.Write([]byte(tt.first)); err != nil {
					t.Fatal(err)
				}
			}
			other := s.dial()
			_ = other.SetDeadline(time.Now().Add(4 * time.Second))
			other.send(add("n", 1))
			other.sum(2)
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			agent, err := coord.Dial(ctx, coord.DialOptions{Addr: s.addr, RunID: "r"})
			if err != nil {
				t.Fatal(err)
			}
			_ = agent.Close(t.Context())
			worker.send(add("n", 1))
			worker.sum(3)
			second.send(add("n", 1))
			second.sum(4)
		})
	}
}
