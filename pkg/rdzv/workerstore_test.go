package rdzv

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/elasticrun/elasticrun/internal/tcplisten"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
)

// A store that was reset is empty and still listens.
func TestWorkerStoreReset(t *testing.T) {
	ln, err := tcplisten.Listen(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	s := ServeWorkerStore(ln, tcpstore.ServerOptions{})
	connect := func() *tcpstore.Client {
		c, err := tcpstore.Dial(t.Context(), s.Addr().String(), tcpstore.ClientOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	before := connect()
	if err := before.Set(t.Context(), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	if err := s.Reset(); err != nil {
		t.Fatal(err)
	}
	if n, err := connect().NumKeys(t.Context()); n != 0 || err != nil {
		t.Errorf("a new client finds %d keys, %v", n, err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := s.Reset(); !errors.Is(err, kvstore.ErrClosed) {
		t.Errorf("Reset after Close: %v", err)
	}
	if _, err := new(net.Dialer).DialContext(context.WithoutCancel(t.Context()), "tcp", s.Addr().String()); err == nil {
		t.Error("it still listens")
	}
}
