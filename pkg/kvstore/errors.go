package kvstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/keyspace"
)

// Errors of every store, client and server wrap one of these if one applies. Test for them with [errors.Is].
var (
	// ErrTimeout means that the context of an operation reached its deadline. The text of a wait's error names the
	// keys that were still missing. The error also wraps the context's own error.
	ErrTimeout = errors.New("timed out")

	// ErrClosed means that Close or Shutdown ended the store. After either, a server's Serve always returns it.
	ErrClosed = errors.New("store is closed")

	// ErrConnection means that a connection could not be made, or broke. If it broke during an operation, it is unknown
	// whether the operation was carried out.
	ErrConnection = errors.New("store connection failed")

	// ErrProtocol means that a peer or a file does not follow the format, or that the format has no room for an
	// operation: a key or value over its limit, or an operation that the protocol lacks.
	ErrProtocol = errors.New("store protocol error")

	// ErrNotNumber means an Add to a value that does not start with a 64-bit decimal number. A client of a TCPStore
	// server gets ErrConnection instead, because the server only closes the connection.
	ErrNotNumber = keyspace.ErrNotNumber
)

// ContextError returns the error of a call that ended with ctx. After a deadline it is an ErrTimeout that also wraps
// the context's error and cause. Otherwise it is the cause.
func ContextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case !errors.Is(err, context.DeadlineExceeded):
		return cause
	case errors.Is(cause, err):
		return fmt.Errorf("%w: %w", ErrTimeout, cause)
	}
	return fmt.Errorf("%w: %w: %w", ErrTimeout, err, cause)
}
