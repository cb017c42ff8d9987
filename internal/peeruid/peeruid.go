package peeruid

import "errors"

// Errors of [Finder.Owner].
var (
	// ErrEnded means that the peer has ended the connection, so it has no user any more.
	ErrEnded = errors.New("the other end has closed the connection")
	// ErrElsewhere means that no socket of this machine and network namespace is the other end.
	ErrElsewhere = errors.New("its process is on another machine, or in a container with a network of its own")
	// ErrUnmapped means that the peer's user does not exist in this process's user namespace.
	ErrUnmapped = errors.New("its user does not exist in the user namespace of this process")
)
