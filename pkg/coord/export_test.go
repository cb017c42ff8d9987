package coord

import (
	"context"
	"net"
	"testing"
)

// StartServer is for tests that stand outside of the package.
func StartServer(t testing.TB, opts ServerOptions) (*Server, string) {
	t.Helper()
	return startServer(t, opts)
}

// FaultyNetwork is faultyNetwork for them.
type FaultyNetwork struct{ f *faultyNetwork }

func NewFaultyNetwork(addr string) *FaultyNetwork { return &FaultyNetwork{newFaultyNetwork(addr)} }

func (n *FaultyNetwork) Dial(ctx context.Context) (net.Conn, error) { return n.f.dial(ctx) }

func (n *FaultyNetwork) Cut()   { n.f.set(func() { n.f.cut = true }) }
func (n *FaultyNetwork) Heal()  { n.f.set(func() { n.f.cut = false }) }
func (n *FaultyNetwork) Reset() { n.f.reset() }
func (n *FaultyNetwork) Kill()  { n.f.kill() }
