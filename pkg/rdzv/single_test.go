package rdzv

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		if r.Number != i || r.Restarts != 0 || r.Rank != 0 || r.WorldSize != 1 || r.Assignment != (Assignment{0, 2, 0, 2}) || !r.UseAgentStore {
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
		}
		before = r
	}
}

// One failure is charged, the second ends the job, and with it every later question.
func TestSingleNodeBudget(t *testing.T) {
	h := newSingle(t, &SingleNodeOptions{MaxRestarts: 1})
	self := Member{LocalWorldSize: 1}
	if r, err := h.NextRendezvous(t.Context(), self); err != nil || r.Restarts != 0 {
		t.Fatalf("first round: %+v, %v", r, err)
	}
	if r, err := h.NextRendezvous(t.Context(), self); err != nil || r.Restarts != 0 {
		t.Fatalf("a round that ended without a failure: %+v, %v", r, err)
	}
	h.Fail(Failure{ExitCode: 3}) // nobody has to be told; what counts is the member's word
	self.Failure = &Failure{ExitCode: 3}
	if r, err := h.NextRendezvous(t.Context(), self); err != nil || r.Number != 2 || r.Restarts != 1 {
		t.Fatalf("after a failure: %+v, %v", r, err)
	}
	self.Failure = &Failure{ExitCode: 4, Signal: syscall.SIGKILL, Text: "text"}
	told, cancel := context.WithCancel(t.Context())
	cancel() // changes nothing: the job has failed before
	for range 2 {
		_, err := h.NextRendezvous(told, self)
		var ended *EndedError
		if !errors.As(err, &ended) || !errors.Is(err, ErrClosed) {
			t.Fatalf("after the last restart: %v", err)
		}
		want := Outcome{Ending: EndFailed, Cause: &Failure{ExitCode: 4, Signal: syscall.SIGKILL, Text: "text"}, Restarts: 1}
		if diff := cmp.Diff(want, ended.Outcome); diff != "" {
			t.Errorf("outcome (-want +got):\n%s", diff)
		}
	}
}

func TestSingleNodeSucceeds(t *testing.T) {
	h := newSingle(t, nil)
	if _, err := h.NextRendezvous(t.Context(), Member{LocalWorldSize: 1}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("told to stop")
	cancel(cause)
	if _, err := h.Succeed(ctx); !errors.Is(err, cause) {
		t.Errorf("told to stop before: %v", err)
	}
	if stop, err := h.Succeed(t.Context()); stop != nil || err != nil {
		t.Errorf("Succeed = %v, %v", stop, err)
	}
	if closed, err := h.IsClosed(t.Context()); err != nil || !closed {
		t.Errorf("IsClosed = %v, %v", closed, err)
	}
	_, err := h.NextRendezvous(t.Context(), Member{LocalWorldSize: 1})
	if ended, ok := errors.AsType[*EndedError](err); !ok || ended.Outcome.Ending != EndSucceeded {
		t.Errorf("another round: %v", err)
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
