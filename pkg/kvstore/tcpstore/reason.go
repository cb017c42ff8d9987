package tcpstore

import "fmt"

// Reason is why a Server closed a connection on its own.
type Reason string

// The reasons. A client that ends or breaks its connection is none of them.
const (
	// ReasonUnknownOp is an op that is not served.
	ReasonUnknownOp Reason = "unknown op"
	// ReasonMalformed is a request that breaks the protocol or its bounds.
	ReasonMalformed Reason = "malformed request"
	// ReasonNotNumber is an ADD to a value that is no number.
	ReasonNotNumber Reason = "add to no number"
	// ReasonStalled is half a request that does not go on, or too slowly.
	ReasonStalled Reason = "stalled request"
	// ReasonMaxConns is one connection more than ServerOptions.MaxConns.
	ReasonMaxConns Reason = "too many connections"
	// ReasonSilent is a connection on which nothing was ever said, and whose place is needed: files run short, or
	// ServerOptions.MaxConns is reached.
	ReasonSilent Reason = "silent"
	// ReasonMemory is more than ServerOptions.MaxMemory.
	ReasonMemory Reason = "out of memory"
)

// refusal is the error that closes a connection for a Reason.
type refusal struct {
	reason Reason
	err    error
}

func refuse(reason Reason, format string, args ...any) error {
	return &refusal{reason: reason, err: fmt.Errorf(format, args...)}
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }
