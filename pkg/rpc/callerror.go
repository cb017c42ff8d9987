package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rpc/membership"
)

// Errors of a call, besides an error of the called function. A [CallError] wraps one of them, or the cause of a
// canceled context. Test with [errors.Is].
var (
	// ErrUnknownWorker means that the group has no member of the called name.
	ErrUnknownWorker = errors.New("no such worker in the group")
	// ErrNoFunction means that the worker has not registered the function. See [NoFunctionError].
	ErrNoFunction = errors.New("no such function")
	// ErrTooLarge means that a request or an answer exceeds the payload limit. See [TooLargeError].
	ErrTooLarge = errors.New("too large")
	// ErrVersion means that the peer speaks another version of the protocol.
	ErrVersion = errors.New("protocol version differs")
	// ErrConnection means that a connection could not be made or has broken. The call may have run.
	ErrConnection = errors.New("connection failed")
	// ErrTimeout means that the deadline of a call, an Init or a Shutdown has passed. The chain also has
	// [context.DeadlineExceeded]. A call may have run. It is [kvstore.ErrTimeout].
	ErrTimeout = kvstore.ErrTimeout
	// ErrShutdown means that this worker or the called worker has shut down the group. It is [membership.ErrShutdown].
	ErrShutdown = membership.ErrShutdown
	// ErrReplaced means that another process now has the address of the called worker.
	ErrReplaced = errors.New("another worker now has the address")
	// ErrEvicted means that the other members have evicted this worker. It is [membership.ErrEvicted].
	ErrEvicted = membership.ErrEvicted
	// ErrEncoding means that a value cannot be encoded, or that bytes do not fit a type. See [EncodingError].
	ErrEncoding = errors.New("encoding")
)

// CallError is the error of a call that returned neither an answer nor an error of the function.
type CallError struct {
	// Worker is the name of the called worker, Func the name of the function.
	Worker, Func string
	// Err is the reason.
	Err error
}

func (e *CallError) Error() string {
	return fmt.Sprintf("call of %s on %s: %v", e.Func, e.Worker, e.Err)
}

// Unwrap returns Err.
func (e *CallError) Unwrap() error { return e.Err }

// NoFunctionError lists the functions of a worker that does not have the called one. It wraps [ErrNoFunction].
type NoFunctionError struct {
	// Known are the registered names, sorted. It has the first 100 at most.
	Known []string
	// More is the number of names that Known omits.
	More int
}

// maxKnown is the maximum number of names in a NoFunctionError.
const maxKnown = 100

func newNoFunctionError(known []string) *NoFunctionError {
	shown := known[:min(len(known), maxKnown)]
	return &NoFunctionError{Known: shown, More: len(known) - len(shown)}
}

func (e *NoFunctionError) Error() string {
	if len(e.Known) == 0 {
		return "no such function: the worker has registered none; pass its Functions to Init"
	}
	text := "no such function; the worker has registered " + strings.Join(e.Known, ", ")
	if e.More > 0 {
		text += fmt.Sprintf(" and %d more", e.More)
	}
	return text
}

// Unwrap returns ErrNoFunction.
func (e *NoFunctionError) Unwrap() error { return ErrNoFunction }

// Directions of a call, as errors name them.
const (
	directionRequest = "request"
	directionAnswer  = "answer"
)

// TooLargeError is the error of a payload that exceeds the limit. It wraps [ErrTooLarge].
type TooLargeError struct {
	// What is "request" or "answer".
	What string
	// Size and Limit are in bytes.
	Size, Limit int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("too large: the %s has %d bytes, the limit is %d; "+
		"send less at a time, or raise MaxPayload on both workers", e.What, e.Size, e.Limit)
}

// Unwrap returns ErrTooLarge.
func (e *TooLargeError) Unwrap() error { return ErrTooLarge }

// EncodingError is the error of a value that cannot be sent, or that does not fit the receiver's type. It wraps
// [ErrEncoding].
type EncodingError struct {
	// What is "request" or "answer".
	What string
	// Sent and Wanted are the Go types of the sender and the receiver; "" if unknown.
	Sent, Wanted string
	// Err is the error of the codec. If the error occurred in the other worker, only its text is available.
	Err error
}

func (e *EncodingError) Error() string {
	switch {
	case e.Wanted == "":
		return fmt.Sprintf("encoding: the %s, of type %s, cannot be sent: %v", e.What, e.Sent, e.Err)
	case e.Sent == "":
		return fmt.Sprintf("encoding: the %s is not of type %s; both workers must use the same type: %v",
			e.What, e.Wanted, e.Err)
	}
	return fmt.Sprintf("encoding: the %s has type %s, but the other worker expects %s: %v",
		e.What, e.Sent, e.Wanted, e.Err)
}

// Unwrap returns ErrEncoding and Err.
func (e *EncodingError) Unwrap() []error { return []error{ErrEncoding, e.Err} }

// timeoutError is the error of a call whose deadline has passed.
type timeoutError struct {
	after     time.Duration
	byDefault bool
	cause     error // cause of the context
	err       error // error of the call, if any
}

func (e *timeoutError) Error() string {
	text := "timed out after " + seconds.Format(e.after)
	if e.byDefault {
		text += ", the limit of calls without a deadline (option Timeout)"
	}
	if e.cause != nil && !errors.Is(e.cause, context.DeadlineExceeded) {
		text += ": " + e.cause.Error()
	}
	if e.err != nil && !errors.Is(e.err, context.DeadlineExceeded) && !errors.Is(e.err, e.cause) {
		text += ": " + e.err.Error()
	}
	return text
}

// Unwrap returns ErrTimeout, context.DeadlineExceeded and the errors that led to it.
func (e *timeoutError) Unwrap() []error {
	chain := []error{ErrTimeout, context.DeadlineExceeded}
	for _, err := range []error{e.cause, e.err} {
		if err != nil {
			chain = append(chain, err)
		}
	}
	return chain
}
