package coord

import (
	"context"
	"net"
	"testing"
)

// StartServer gives startServer to tests of package coord_test.
func StartServer(t testing.TB, opts ServerOptions) (*Server, string) {
	t.Helper()
	return startServer(t, opts)
}

// FaultyNetwork gives faultyNetwork to tests of package coord_test.
type FaultyNetwork struct{ f *faultyNetwork }

func NewFaultyNetwork(connect func(context.Context) (net.Conn, error)) *FaultyNetwork {
	return &FaultyNetwork{newFaultyNetwork(connect)}
}

func (n *FaultyNetwork) Dial(ctx context.Context) (net.Conn, error) { return n.f.dial(ctx) }

func (n *FaultyNetwork) Cut()   { n.f.set(func() { n.f.cut = true }) }
func (n *FaultyNetwork) Heal()  { n.f.set(func() { n.f.cut = false }) }
func (n *FaultyNetwork) Reset() { n.f.reset() }
func (n *FaultyNetwork) Kill()  { n.f.kill() }
