package transport

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Each error of a call, probe or watch is an [Error]. It wraps one of these errors, or the cause of a canceled
// context. Test with [errors.Is].
var (
	// ErrConnection means that a connection could not be made or has broken, or that an answer was cut off. The call
	// may have run.
	ErrConnection = errors.New("connection failed")

	// ErrVersion means that the peer speaks gRPC, but not this version of this service.
	ErrVersion = errors.New("other version or service")

	// ErrProtocol means that the peer certainly does not speak gRPC, or not as this package does.
	ErrProtocol = errors.New("no gRPC")

	// ErrTooLarge means that a request or an answer exceeds a limit. See [SizeError].
	ErrTooLarge = errors.New("message too large")

	// ErrRefused means that the peer refused a watch. The text is the peer's.
	ErrRefused = errors.New("watch refused")

	// ErrTimeout means that the context of a call reached its deadline. The chain also has
	// [context.DeadlineExceeded].
	ErrTimeout = errors.New("timed out")

	// ErrClosed means that the Pool was closed before or during the call, or that a watch ended with its Server.
	ErrClosed = errors.New("transport is closed")
)

// Error is the error of a call, a probe or a watch.
type Error struct {
	Addr string // address of the peer, as the caller gave it
	Err  error
}

func (e *Error) Error() string { return "peer " + e.Addr + ": " + e.Err.Error() }

// Unwrap returns the error without the address.
func (e *Error) Unwrap() error { return e.Err }

// SizeError means that a message exceeds a limit. It wraps [ErrTooLarge].
type SizeError struct {
	Answer bool // the message is the answer, else the request
	Peers  bool // the limit is the peer's, else this side's
	Size   int  // bytes; 0 if unknown
	Limit  int  // bytes; 0 if unknown
}

func (e *SizeError) Error() string {
	message, whose := "request", "this side"
	if e.Answer {
		message = "answer"
	}
	if e.Peers {
		whose = "the peer"
	}
	if e.Size == 0 {
		return fmt.Sprintf("%v: the %s is above the limit of %s", ErrTooLarge, message, whose)
	}
	return fmt.Sprintf("%v: the %s has %d bytes, and %s takes %d at most", ErrTooLarge, message, e.Size, whose, e.Limit)
}

// Unwrap returns ErrTooLarge.
func (*SizeError) Unwrap() error { return ErrTooLarge }

// answerTooLarge is the text of the status, with code OutOfRange, by which a server reports an answer above its
// limit.
const answerTooLarge = "answer of %d bytes, limit %d"

// requestTooLarge is gRPC's text, with code ResourceExhausted, for a message above the receiver's limit.
const requestTooLarge = "grpc: received message " + tooLarge + " (%d vs. %d)"

// Parts of gRPC's texts: for a message above a limit, and, at the beginning, for an answer in HTTP/2 without gRPC,
// and for one without HTTP/2.
const (
	tooLarge  = "larger than max"
	otherHTTP = "unexpected HTTP status code"
	noHTTP    = "malformed header: missing HTTP status"
)

// explain translates an error from gRPC, for a side that accepts messages of up to limit bytes. The caller has
// checked the context and the connection first. This package's servers use two codes, gRPC uses others, and proxies
// may use any code. A code that proves nothing becomes ErrConnection: a broken connection or a proxy that gives up
// also yields Internal, Unknown or Canceled.
func explain(err error, limit int) error {
	if errors.Is(err, ErrProtocol) { // this side has detected it
		return err
	}
	st := status.Convert(err)
	code, text := st.Code(), oneLine(st.Message())
	switch {
	case code == codes.Unavailable: // also a proxy's 429, 502, 503 and 504
		return fmt.Errorf("%w: %s", ErrConnection, text)
	case code == codes.FailedPrecondition:
		return fmt.Errorf("%w: %s", ErrRefused, text)
	case code == codes.OutOfRange:
		e := &SizeError{Answer: true, Peers: true}
		_, _ = fmt.Sscanf(text, answerTooLarge, &e.Size, &e.Limit) // if the scan fails, the sizes stay unknown
		return e
	// Without that text it is another limit, such as a rate of calls.
	case code == codes.ResourceExhausted && strings.Contains(text, tooLarge):
		return sizeError(text, limit)
	case strings.HasPrefix(text, otherHTTP), strings.HasPrefix(text, noHTTP): // the code follows from the HTTP status
		return fmt.Errorf("%w: %s", ErrProtocol, text)
	case code == codes.Unimplemented:
		return fmt.Errorf("%w: %s", ErrVersion, text)
	}
	return fmt.Errorf("%w: %s: %s", ErrConnection, code, text)
}

// oneLine returns the first line of gRPC's text, without the prefix that connections add.
func oneLine(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	if quoted, wrapped := strings.CutPrefix(text, "connection error: desc = "); wrapped {
		if inner, err := strconv.Unquote(quoted); err == nil {
			text, _, _ = strings.Cut(inner, "\n")
		}
	}
	return text
}

// sizeError finds out whose limit a message exceeded. A request that was sent is within this side's limit, so the
// exceeded limit is smaller. An answer that arrived exceeds this side's own limit.
func sizeError(text string, limit int) error {
	e := &SizeError{}
	if n, _ := fmt.Sscanf(text, requestTooLarge, &e.Size, &e.Limit); n < 2 {
		return fmt.Errorf("%w: %s", ErrTooLarge, text)
	}
	e.Answer = e.Limit >= limit
	e.Peers = !e.Answer
	return e
}

// endOf returns the error of a call that ended with its context.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case !errors.Is(err, context.DeadlineExceeded):
		return cause
	case errors.Is(cause, err):
		return fmt.Errorf("%w: %w", ErrTimeout, cause)
	}
	return fmt.Errorf("%w: %w: %w", ErrTimeout, err, cause)
}
