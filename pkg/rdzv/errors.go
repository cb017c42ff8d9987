package rdzv

import "errors"

// The error family of seed 000. Errors of this package that concern a
// rendezvous wrap exactly one of the four; each of the four is also an
// [ErrRendezvous], so errors.Is tells both the family and the kind.
var (
	// ErrRendezvous is the base of the family.
	ErrRendezvous = errors.New("rendezvous")
	// ErrClosed says that the run id was closed: no further round will form.
	ErrClosed error = &kind{"rendezvous is closed"}
	// ErrTimeout says that the rendezvous did not complete in time.
	ErrTimeout error = &kind{"rendezvous timed out"}
	// ErrConnection says that the backend could not be reached or was lost.
	ErrConnection error = &kind{"rendezvous backend connection"}
	// ErrState says that the state held by the backend is corrupt.
	ErrState error = &kind{"rendezvous state is corrupt"}
	// ErrGracefulExit says that a node which was only kept as a spare is no
	// longer needed (torch 2.14's RendezvousGracefulExitError).
	ErrGracefulExit error = &kind{"rendezvous ended without this node"}
)

// kind is one member of the family; it unwraps to the base.
type kind struct{ text string }

func (k *kind) Error() string { return k.text }
func (k *kind) Unwrap() error { return ErrRendezvous }
