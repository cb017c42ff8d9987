package storeserver

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/pkg/coord"
)

// Runs, sessions, handshakes, keys and memory are counted, and each has a limit that --max-memory scales.
func TestAgentsAreCountedWithLimits(t *testing.T) {
	var limits []agentCounts
	for _, memory := range []int64{64 << 20, 128 << 20} {
		c, err := serveAgents(t.Context(), &config.Store{MaxMemory: memory}, "", zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.close)
		connect := func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			c.server.ServeConn(there)
			return here, nil
		}
		agent, err := coord.Dial(t.Context(), coord.DialOptions{Conn: connect, RunID: "run", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := agent.Commit(t.Context(), nil, []coord.Op{{
			Key: "run/agent/" + string(agent.Session()), Owned: true,
		}}); err != nil {
			t.Fatal(err)
		}
		unknownPeer, _ := connect(t.Context())
		t.Cleanup(func() { unknownPeer.Close() })
		got := c.counts()
		if got.Runs.Now != 1 || got.Sessions.Now != 1 || got.Handshakes.Now != 1 || got.Keys.Now < 1 || got.Memory.Now < 1 {
			t.Errorf("counts %+v", got)
		}
		limits = append(limits, got)
		if err := agent.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	half, whole := limits[0], limits[1]
	for name, q := range map[string][2]quantity{
		"runs": {half.Runs, whole.Runs}, "sessions": {half.Sessions, whole.Sessions}, "keys": {half.Keys, whole.Keys},
		"handshakes": {half.Handshakes, whole.Handshakes}, "memory": {half.Memory, whole.Memory},
	} {
		if least := q[0].Limit; least < q[0].Now || q[1].Limit < 2*least || q[1].Limit > 2*least+1 {
			t.Errorf("%s: %+v", name, q)
		}
	}
}
