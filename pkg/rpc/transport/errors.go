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

// Each error of a call, probe or watch is an [Error] that wraps one of these, or the cause of a context that was cancelled. Ask
// with [errors.Is].
var (
	// ErrConnection is a connection that could not be made, or that broke, or an answer that was cut off: whether the call was carried out
	// is not known then.
	ErrConnection = errors.New("connection failed")

	// ErrVersion is a peer that speaks gRPC, but not this version of this package's service.
	ErrVersion = errors.New("other version or service")

	// ErrProtocol is a peer that for certain does not speak gRPC, or not as this package does.
	ErrProtocol = errors.New("no gRPC")

	// ErrTooLarge is a request or an answer above a limit; see [SizeError].
	ErrTooLarge = errors.New("message too large")

	// ErrRefused is a watch that the peer does not want; the text is the peer's.
	ErrRefused = errors.New("watch refused")

	// ErrTimeout is a call whose context reached its deadline. [context.DeadlineExceeded] is in the chain too.
	ErrTimeout = errors.New("timed out")

	// ErrClosed is a call over a Pool that was closed before or meanwhile, or a watch that ended with its Server.
	ErrClosed = errors.New("transport is closed")
)

// Error is what became of a call, a probe or a watch.
type Error struct {
	Addr string // the peer's, as it was given
	Err  error
}

func (e *Error) Error() string { return "peer " + e.Addr + ": " + e.Err.Error() }

// Unwrap returns what happened, without the address.
func (e *Error) Unwrap() error { return e.Err }

// SizeError is a message above a limit. [ErrTooLarge] is in its chain.
type SizeError struct {
	Answer bool // the answer; else the request
	Peers  bool // the limit is the peer's; else this side's
	Size   int  // bytes; 0 where it is not known
	Limit  int  // bytes; 0 where it is not known
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

// answerTooLarge is the text of the status by which a server tells, with code OutOfRange, that it has an answer above its limit.
const answerTooLarge = "answer of %d bytes, limit %d"

// requestTooLarge is what gRPC says of a message above the receiver's limit, with code ResourceExhausted.
const requestTooLarge = "grpc: received message " + tooLarge + " (%d vs. %d)"

// Parts of what gRPC says: of a message above a limit, and at the beginning, of an answer that is HTTP/2's but not gRPC's, or not even HTTP/2's.
const (
	tooLarge  = "larger than max"
	otherHTTP = "unexpected HTTP status code"
	noHTTP    = "malformed header: missing HTTP status"
)

// explain says what a failure reported by gRPC means, for a side that takes messages of limit bytes. Contexts that have
// ended and what is known of the connection come before it. Of the codes, this package's servers use two, gRPC itself others, and whatever
// is on the way to the peer may use any. A code that proves nothing is ErrConnection: what cuts an answer off, a broken connection or a
// proxy that gives up, comes as Internal, Unknown or Canceled too.
func explain(err error, limit int) error {
	if errors.Is(err, ErrProtocol) { // this side has noticed
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
		_, _ = fmt.Sscanf(text, answerTooLarge, &e.Size, &e.Limit) // without, the sizes are unknown
		return e
	case code == codes.ResourceExhausted && strings.Contains(text, tooLarge): // else it is a limit of another kind, as on the rate of calls
		return sizeError(text, limit)
	case strings.HasPrefix(text, otherHTTP), strings.HasPrefix(text, noHTTP): // the code follows from the HTTP status
		return fmt.Errorf("%w: %s", ErrProtocol, text)
	case code == codes.Unimplemented:
		return fmt.Errorf("%w: %s", ErrVersion, text)
	}
	return fmt.Errorf("%w: %s: %s", ErrConnection, code, text)
}

// oneLine is what a user needs of gRPC's text: its first line, without the wrapping that connections put around it.
func oneLine(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	if quoted, wrapped := strings.CutPrefix(text, "connection error: desc = "); wrapped {
		if inner, err := strconv.Unquote(quoted); err == nil {
			text, _, _ = strings.Cut(inner, "\n")
		}
	}
	return text
}

// sizeError reads whose limit a message was above. A request that was sent is within this side's limit, so that the
// limit it exceeds is smaller; an answer that came exceeds this side's own.
func sizeError(text string, limit int) error {
	e := &SizeError{}
	if n, _ := fmt.Sscanf(text, requestTooLarge, &e.Size, &e.Limit); n < 2 {
		return fmt.Errorf("%w: %s", ErrTooLarge, text)
	}
	e.Answer = e.Limit >= limit
	e.Peers = !e.Answer
	return e
}

// endOf is the error of a call that ended with its context.
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
