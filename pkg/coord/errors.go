package coord

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ErrReplaced says that the store is gone and another one is at its address. It is an ErrUnavailable.
var ErrReplaced = fmt.Errorf("%w: there is another store now", ErrUnavailable)

// Reason is why a store refuses a client.
type Reason byte

// The reasons. The last two may pass; the others will not.
const (
	ReasonProtocol Reason = 1 + iota // it speaks another version of the agents' protocol
	ReasonVersion                    // it is another version of elasticrun
	ReasonRunID                      // the store is another job's
	ReasonSecret                     // the shared secrets differ, or only one side has one
	ReasonGone                       // the session to be resumed is over
	ReasonFull                       // it has as many agents as it takes
	ReasonClosing                    // it is about to end
)

func (r Reason) String() string {
	names := [...]string{
		"?", "other protocol", "other version", "other run id", "other secret", "session gone", "full", "closing",
	}
	if int(r) >= len(names) {
		r = 0
	}
	return names[r]
}

// RefusedError says that a store will not have this client, however often it tries.
type RefusedError struct {
	Addr    string
	Reason  Reason
	Message string // for people: both sides' values, and what to do
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("coordination store at %s refuses: %s", e.Addr, e.Message)
}

// Obstacle is why no coordination store was reached.
type Obstacle int

// The obstacles. At all but the last two it is worth to try again.
const (
	ObstacleConnect Obstacle = iota // the connection cannot be made, as for a name or a route that is not known
	ObstacleRefused                 // nobody listens
	ObstacleTimeout                 // nothing answers the attempt to connect
	ObstacleSilent                  // it is connected, but nothing answers
	ObstacleClosed                  // the connection ends before anything is said
	ObstacleBusy                    // a store that is full or about to end
	ObstacleTorch                   // a torch TCPStore
	ObstacleForeign                 // something else
)

// DialError says why no coordination store was reached. It is an ErrUnavailable if that may pass.
type DialError struct {
	Addr     string
	Obstacle Obstacle
	Message  string // what was found there
	Err      error  // the cause, if there is one
}

func (e *DialError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "connect to coordination store at %s: %s", e.Addr, e.Message)
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *DialError) Unwrap() error { return e.Err }

// Is makes a DialError an ErrUnavailable if it may pass.
func (e *DialError) Is(target error) bool {
	return target == ErrUnavailable && e.Obstacle < ObstacleTorch
}

// errOf is the error of a code, with the line that came with it; nil for codeDone.
func errOf(c resultCode, line string) error {
	switch {
	case c == codeDone:
		return nil
	case int(c) < len(codes) && codes[c] != nil:
		if line = printable(line); line == "" {
			return codes[c]
		}
		return fmt.Errorf("%w: %s", codes[c], line)
	}
	return errors.New(printable(line))
}

// codeOf is the code of an error and the line that goes with it, without what the code itself says.
func codeOf(err error) (resultCode, string) {
	for c, e := range codes {
		if e != nil && errors.Is(err, e) {
			return resultCode(c), strings.TrimPrefix(strings.TrimPrefix(err.Error(), e.Error()), ": ")
		}
	}
	return codeInvalid, err.Error()
}

// errClosed is that of a session that its owner has closed.
var errClosed = &wrapped{"it was closed", ErrSessionLost}

// wrapped is an error with a line after it.
type wrapped struct {
	line string
	err  error
}

func (w *wrapped) Error() string { return w.err.Error() + ": " + w.line }
func (w *wrapped) Unwrap() error { return w.err }

// unavailable is an ErrUnavailable for the end of ctx.
func unavailable(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
}
