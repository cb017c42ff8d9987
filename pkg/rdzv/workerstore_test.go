package rdzv

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// An IPv4 address is not taken for those of IPv6 too, as package net would take 0.0.0.0.
func TestListenTakesTheHostAtItsWord(t *testing.T) {
	for host, v4 := range map[string]bool{"": false, "0.0.0.0": true, "127.0.0.1": true} {
		ln, err := Listen(t.Context(), host, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		at := ln.Addr().(*net.TCPAddr).AddrPort().Addr()
		if wanted, _ := netip.ParseAddr(host); v4 && at != wanted || host == "" && !at.IsUnspecified() {
			t.Errorf("%q: it listens on %v", host, at)
		}
	}
}

func TestRenewedWorkerStoreIsEmpty(t *testing.T) {
	ln, err := Listen(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	s := ServeWorkerStore(ln, kvstore.ServerOptions{})
	connect := func() *kvstore.Client {
		c, err := kvstore.Dial(t.Context(), s.Addr().String(), kvstore.ClientOptions{})
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
	if err := s.Renew(); err != nil {
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
	if err := s.Renew(); !errors.Is(err, kvstore.ErrClosed) {
		t.Errorf("Renew after Close: %v", err)
	}
	if _, err := new(net.Dialer).DialContext(context.WithoutCancel(t.Context()), "tcp", s.Addr().String()); err == nil {
		t.Error("it still listens")
	}
}
