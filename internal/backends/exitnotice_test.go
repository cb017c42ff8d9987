package backends

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/coord"
)

// TestExitNotice sends the exit notice of a dead agent whose store may be at several addresses. The store is at the
// second.
func TestExitNotice(t *testing.T) {
	s := coord.NewServer(coord.ServerOptions{Secret: []byte("secret"), RunID: "r"})
	t.Cleanup(func() { _ = s.Close() })
	agent, err := coord.Dial(t.Context(), coord.DialOptions{
		Addr: testenv.Serve(t, s.ServeConn), Secret: []byte("secret"), RunID: "r", TTL: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = agent.Close(ctx) // its session has ended
	})
	text, err := json.Marshal(exitNotice{
		Addrs: []string{"127.0.0.1:0", agent.Addrs()[0]}, RunID: "r", Secret: []byte("secret"), Token: agent.Token(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := SendExitNotice(text, nil, time.Minute); err != nil {
		t.Error(err)
	}
	if n := s.Sessions(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
	if err := SendExitNotice([]byte("{}"), nil, ExitNoticeTimeout); err == nil {
		t.Error("a notice without an address was sent")
	}
}
