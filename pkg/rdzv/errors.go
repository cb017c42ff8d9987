package rdzv

import (
	"errors"
	"fmt"
	"time"
)

// The errors of a rendezvous, as in torch 2.14, torch/distributed/elastic/rendezvous/api.py. All others wrap
// ErrRendezvous. A [Handler]'s rendezvous error wraps exactly one of these others, so errors.Is finds both the family
// and the kind.
var (
	// ErrRendezvous is the base of the other errors.
	ErrRendezvous = errors.New("rendezvous")
	// ErrClosed says that the run id is closed: no further round will form.
	ErrClosed error = &kind{"rendezvous is closed"}
	// ErrTimeout says that the rendezvous did not complete in time.
	ErrTimeout error = &kind{"rendezvous timed out"}
	// ErrConnection says that the backend cannot be reached or was lost.
	ErrConnection error = &kind{"rendezvous backend connection"}
	// ErrState says that the backend's state is corrupt.
	ErrState error = &kind{"rendezvous state is corrupt"}
	// ErrGracefulExit says that the job has succeeded without this node, a spare or a late one, so the node is not needed
	// (torch's RendezvousGracefulExitError).
	ErrGracefulExit error = &kind{"rendezvous ended without this node"}
	// ErrRefused says that this node does not fit the job, for example because its parameters differ. torch has no such
	// error.
	ErrRefused error = &kind{"rendezvous refuses this node"}
)

// kind is one kind of ErrRendezvous.
type kind struct{ text string }

func (k *kind) Error() string { return k.text }
func (k *kind) Unwrap() error { return ErrRendezvous }

// NeededError is what [Handler.Succeed] returns when the time at the exit barrier is over, but other nodes depend on
// this one. The agent stays and calls Succeed again.
type NeededError struct {
	// Why completes "this node": what it does for the others.
	Why string
	// Others names the nodes that still run; empty if they are not known.
	Others string
	// For is how long this node has to stay at most; 0: until the job has ended.
	For time.Duration
}

func (e *NeededError) Error() string {
	others := ""
	if e.Others != "" {
		others = " (" + e.Others + ")"
	}
	stays := "until the job has ended"
	if e.For > 0 {
		stays = "for another " + e.For.Round(time.Second).String()
	}
	return fmt.Sprintf("other nodes still run%s, and this node %s: it stays %s", others, e.Why, stays)
}
