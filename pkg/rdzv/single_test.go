package rdzv

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"
)

func newSingle(t *testing.T, opts *SingleNodeOptions) Handler {
	t.Helper()
	h, err := SingleNode{Backend: BackendC10d, Options: opts}.Create(t.Context(), Parameters{RunID: "run", MaxNodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return h
}

func dial(r *Round) error {
	c, err := net.Dial("tcp", net.JoinHostPort(r.MasterAddr, strconv.Itoa(r.MasterPort)))
	if err == nil {
		err = c.Close()
	}
	return err
}

func TestSingleNodeRounds(t *testing.T) {
	h := newSingle(t, nil)
	var before *Round
	for i := range 3 {
		r, err := h.NextRendezvous(t.Context(), Member{Role: "r", LocalWorldSize: 2})
		if err != nil {
			t.Fatal(err)
		}
		if r.Number != i || r.Rank != 0 || r.WorldSize != 1 || r.Assignment != (Assignment{0, 2, 0, 2}) || !r.UseAgentStore {
			t.Errorf("round %d = %+v", i, r)
		}
		if r.MasterAddr != "127.0.0.1" {
			t.Errorf("MasterAddr = %q, want an address that needs no resolution", r.MasterAddr)
		}
		if err := dial(r); err != nil {
			t.Errorf("the worker store does not listen: %v", err)
		}
		if before != nil {
			if dial(before) == nil {
				t.Errorf("the worker store of the round before still listens")
			}
			if n, err := r.Store.NumKeys(t.Context()); err != nil || n != 0 {
				t.Errorf("the new round's store holds %d keys, %v", n, err)
			}
		}
		if err := r.Store.Set(t.Context(), "k", []byte("v")); err != nil {
			t.Fatal(err)
		}
		before = r
	}
}

func TestSingleNodeConfiguredAddress(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	self := Member{Role: "r", LocalWorldSize: 1, MasterAddr: "localhost", MasterPort: port}

	h := newSingle(t, &SingleNodeOptions{LocalAddr: "192.0.2.1"})
	_, err = h.NextRendezvous(t.Context(), self)
	var listen *ListenError
	if !errors.As(err, &listen) || !errors.Is(err, syscall.EADDRINUSE) || !errors.Is(err, ErrConnection) || listen.Port != port {
		t.Fatalf("a port that is taken: %v", err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the same port again in the next round
		r, err := h.NextRendezvous(t.Context(), self)
		if err != nil {
			t.Fatal(err)
		}
		if r.MasterAddr != "localhost" || r.MasterPort != port {
			t.Errorf("announced %s:%d, want what was configured", r.MasterAddr, r.MasterPort)
		}
		if err := dial(r); err != nil {
			t.Error(err)
		}
	}
	// What is lost in a later round was no bad input.
	if _, err := h.NextRendezvous(t.Context(), Member{LocalWorldSize: 1}); !errors.Is(err, ErrConnection) || errors.As(err, &listen) {
		t.Errorf("an address that is lost later: %v", err)
	}
	first := newSingle(t, &SingleNodeOptions{LocalAddr: "192.0.2.1"})
	if _, err := first.NextRendezvous(t.Context(), Member{LocalWorldSize: 1}); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("a local address that is none: %v", err)
	}
}

func TestSingleNodeWorkersHost(t *testing.T) {
	h := newSingle(t, &SingleNodeOptions{WorkersHostStore: true})
	r, err := h.NextRendezvous(t.Context(), Member{LocalWorldSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	if r.UseAgentStore || r.MasterPort == 0 {
		t.Errorf("round = %+v", r)
	}
	if dial(r) == nil {
		t.Error("something listens on the port that is a worker's")
	}
}

func TestSingleNodeEnds(t *testing.T) {
	h := newSingle(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("told to stop")
	cancel(cause)
	if _, err := h.NextRendezvous(ctx, Member{LocalWorldSize: 1}); !errors.Is(err, cause) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := h.NextRendezvous(t.Context(), Member{}); err == nil {
		t.Error("a member without workers was let in")
	}
	if closed, err := h.IsClosed(t.Context()); err != nil || closed {
		t.Errorf("IsClosed = %v, %v", closed, err)
	}
	if err := h.SetClosed(t.Context()); err != nil {
		t.Fatal(err)
	}
	if closed, err := h.IsClosed(t.Context()); err != nil || !closed {
		t.Errorf("IsClosed after SetClosed = %v, %v", closed, err)
	}
	if _, err := h.NextRendezvous(t.Context(), Member{LocalWorldSize: 1}); !errors.Is(err, ErrClosed) {
		t.Errorf("after SetClosed: %v", err)
	}
	if n := h.NumNodesWaiting(); n != 0 {
		t.Errorf("NumNodesWaiting = %d", n)
	}
	many := Parameters{MaxNodes: 2}
	if _, err := (SingleNode{Backend: "c10d"}).Create(t.Context(), many); err == nil {
		t.Error("two nodes were accepted")
	}
}
