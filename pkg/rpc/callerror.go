package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rpc/membership"
)

// What may come of a call beside an answer and an error of the function. A [CallError] wraps one of them, or the cause of
// a cancelled context. Ask with [errors.Is].
var (
	// ErrUnknownWorker is a call to a name that no member of the group has.
	ErrUnknownWorker = errors.New("no such worker in the group")
	// ErrNoFunction is a call of a function that the worker has not registered; see [NoFunctionError].
	ErrNoFunction = errors.New("no such function")
	// ErrTooLarge is a request or an answer over the limit of a payload; see [TooLargeError].
	ErrTooLarge = errors.New("too large")
	// ErrVersion is a peer that speaks another version of the protocol.
	ErrVersion = errors.New("another version of the protocol")
	// ErrConnection is a connection that could not be made, or that broke: whether the call was carried out is not known then.
	ErrConnection = errors.New("connection failed")
	// ErrTimeout is a call, an Init or a Shutdown whose deadline has passed; [context.DeadlineExceeded] is in the chain too. Whether a call was
	// carried out is not known then. It is [kvstore.ErrTimeout].
	ErrTimeout = kvstore.ErrTimeout
	// ErrShutdown is a call in a group that this worker, or the called one, has shut down. It is [membership.ErrShutdown].
	ErrShutdown = membership.ErrShutdown
	// ErrReplaced is an address where by now another worker answers than the one that was called.
	ErrReplaced = errors.New("another worker has the address by now")
	// ErrEvicted is a call in a group that takes this worker for dead. It is [membership.ErrEvicted].
	ErrEvicted = membership.ErrEvicted
	// ErrEncoding is a value that cannot be encoded, or bytes that do not fit a type; see [EncodingError].
	ErrEncoding = errors.New("encoding")
)

// CallError is a call that brought neither an answer nor an error of the function.
type CallError struct {
	// Worker is the name that was called, Func the function's.
	Worker, Func string
	// Err says what came of it.
	Err error
}

func (e *CallError) Error() string {
	return fmt.Sprintf("call of %s on %s: %v", e.Func, e.Worker, e.Err)
}

// Unwrap makes it one of the package's errors.
func (e *CallError) Unwrap() error { return e.Err }

// NoFunctionError says which functions a worker has. It is an [ErrNoFunction].
type NoFunctionError struct {
	// Known are the registered names, sorted: the first of them, if there are more than a hundred.
	Known []string
	// More counts those that Known leaves out.
	More int
}

// maxKnown is how many names a NoFunctionError has at most.
const maxKnown = 100

func newNoFunctionError(known []string) *NoFunctionError {
	shown := known[:min(len(known), maxKnown)]
	return &NoFunctionError{Known: shown, More: len(known) - len(shown)}
}

func (e *NoFunctionError) Error() string {
	if len(e.Known) == 0 {
		return "no such function: the worker has registered none; it has to give its Functions to Init"
	}
	text := "no such function; the worker has registered " + strings.Join(e.Known, ", ")
	if e.More > 0 {
		text += fmt.Sprintf(" and %d more", e.More)
	}
	return text
}

// Unwrap returns ErrNoFunction.
func (e *NoFunctionError) Unwrap() error { return ErrNoFunction }

// A call's two directions, as errors name them.
const (
	directionRequest = "request"
	directionAnswer  = "answer"
)

// TooLargeError is a payload over the limit. It is an [ErrTooLarge].
type TooLargeError struct {
	// What is "request" or "answer".
	What string
	// Size and Limit are bytes.
	Size, Limit int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("too large: the %s has %d bytes, and the limit is %d; send less at a time, or raise MaxPayload on both workers",
		e.What, e.Size, e.Limit)
}

// Unwrap returns ErrTooLarge.
func (e *TooLargeError) Unwrap() error { return ErrTooLarge }

// EncodingError is a value that cannot be sent, or that does not fit the type of who received it. It is an [ErrEncoding].
type EncodingError struct {
	// What is "request" or "answer".
	What string
	// Sent and Wanted are the Go types of the two ends; "" where not known.
	Sent, Wanted string
	// Err is the codec's error. Where the other worker has met it, only its text is left.
	Err error
}

func (e *EncodingError) Error() string {
	switch {
	case e.Wanted == "":
		return fmt.Sprintf("encoding: the %s, of type %s, cannot be sent: %v", e.What, e.Sent, e.Err)
	case e.Sent == "":
		return fmt.Sprintf("encoding: the %s is no %s, which both workers must name as its type: %v", e.What, e.Wanted, e.Err)
	}
	return fmt.Sprintf("encoding: the %s is of type %s, and the other worker wants %s: %v", e.What, e.Sent, e.Wanted, e.Err)
}

// Unwrap makes it an ErrEncoding too.
func (e *EncodingError) Unwrap() []error { return []error{ErrEncoding, e.Err} }

// timeoutError is a call whose deadline has passed.
type timeoutError struct {
	after     time.Duration
	byDefault bool
	cause     error // of the context
	err       error // what the call has brought, if anything
}

func (e *timeoutError) Error() string {
	text := fmt.Sprintf("timed out after %v", e.after)
	if e.byDefault {
		text += ", the limit of calls whose context has no deadline (Timeout)"
	}
	if e.cause != nil && !errors.Is(e.cause, context.DeadlineExceeded) {
		text += ": " + e.cause.Error()
	}
	if e.err != nil && !errors.Is(e.err, context.DeadlineExceeded) && !errors.Is(e.err, e.cause) {
		text += ": " + e.err.Error()
	}
	return text
}

// Unwrap has the error of the context beside ours.
func (e *timeoutError) Unwrap() []error {
	chain := []error{ErrTimeout, context.DeadlineExceeded}
	for _, err := range []error{e.cause, e.err} {
		if err != nil {
			chain = append(chain, err)
		}
	}
	return chain
}
