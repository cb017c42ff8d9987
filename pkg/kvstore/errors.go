package kvstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/keyspace"
)

// The errors of every store, client and server of this package wrap one of these, wherever one fits. Ask with
// [errors.Is].
var (
	// ErrTimeout is an operation whose context reached its deadline. The text of a wait's error names
	// the keys that were still missing; the context's own error is in the chain too.
	ErrTimeout = errors.New("timed out")

	// ErrClosed is an operation on something that Close or Shutdown has ended. Server.Serve always
	// returns it after those.
	ErrClosed = errors.New("store is closed")

	// ErrConnection is a connection that could not be made, or that broke: whether the operation
	// under way was carried out is not known then.
	ErrConnection = errors.New("store connection failed")

	// ErrProtocol is a peer, or a file, that does not keep to the format, or an operation that the format
	// has no room for: a key or value over its bounds, an operation that the generation lacks.
	ErrProtocol = errors.New("store protocol error")

	// ErrNotNumber is an Add to a value that does not start with a 64-bit decimal number, where the
	// store can tell. A torch server cannot: it closes the connection.
	ErrNotNumber = keyspace.ErrNotNumber
)

// EndOf is the error of a call that ended with ctx: ErrTimeout, with the context's own error and its cause in the chain, after a deadline, and
// otherwise the cause.
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
