package coord

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/plainerr"
)

// ErrReplaced means that the store is gone and another store runs at its address. It wraps ErrUnavailable.
var ErrReplaced = fmt.Errorf("%w: another store runs at its address", ErrUnavailable)

// Reason is why a store refuses a client.
type Reason byte

// The reasons of a refusal. ReasonFull, ReasonClosing and ReasonElsewhere may pass; the others will not.
const (
	ReasonProtocol         Reason = 1 + iota // the client speaks another version of the agents' protocol
	ReasonVersion                            // the client is another version of elasticrun
	ReasonRunID                              // the store belongs to another job
	ReasonSecret                             // the shared secrets differ, or only one side has one
	ReasonGone                               // the session to resume has ended
	ReasonFull                               // the store has as many agents as it can take
	ReasonClosing                            // the store is closing
	ReasonCertificate                        // the store does not accept the client's certificate
	ReasonStoreCertificate                   // the client does not accept the store's certificate
	ReasonElsewhere                          // another member of the store's group serves now
)

func (r Reason) String() string {
	names := [...]string{
		"?", "other protocol", "other version", "other run id", "other secret", "session gone", "full", "closing",
		"certificate", "the store's certificate", "elsewhere",
	}
	if int(r) >= len(names) {
		r = 0
	}
	return names[r]
}

// RefusedError means that the store will never accept this client, or the client never the store, however often it
// tries.
type RefusedError struct {
	Addr    string
	Reason  Reason
	Message string // for people: the values of both sides, and what to do
}

func (e *RefusedError) Error() string {
	if e.Reason == ReasonStoreCertificate {
		return fmt.Sprintf("the store at %s is not accepted: %s", e.Addr, e.Message)
	}
	return fmt.Sprintf("the store at %s refuses: %s", e.Addr, e.Message)
}

// Obstacle is why no coordination store could be reached.
type Obstacle int

// The obstacles. All but the last two may pass, so a client should try again.
const (
	ObstacleConnect   Obstacle = iota // no connection is possible, for example because of an unknown name or route
	ObstacleRefused                   // nobody listens at the address
	ObstacleTimeout                   // the attempt to connect gets no answer
	ObstacleSilent                    // the peer accepts the connection but does not answer
	ObstacleClosed                    // the peer closes the connection without an answer
	ObstacleBusy                      // the store is full or closing
	ObstacleElsewhere                 // another member of the store's group serves now
	ObstacleRejected                  // the peer, which may not be the store, does not accept the client's certificate
	ObstacleTorch                     // the peer is a torch TCPStore
	ObstacleForeign                   // the peer is something else
)

// DialError says why no coordination store was reached. It matches ErrUnavailable if the obstacle may pass.
type DialError struct {
	Addr     string
	Obstacle Obstacle
	Message  string // what was found at the address
	Err      error  // the cause; may be nil

	servedAt string // with ObstacleElsewhere: the address that the member has named, or empty
}

func (e *DialError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "connect to the job's store at %s: %s", e.Addr, e.Message)
	if e.Err != nil && e.Obstacle != ObstacleRefused && e.Obstacle != ObstacleTimeout { // these say what Err says
		b.WriteString(": " + plainerr.Text(e.Err))
	}
	return b.String()
}

// Waits reports whether the process at the address could begin the store but waits for others to do so.
func (e *DialError) Waits() bool { return e.Obstacle == ObstacleElsewhere && e.servedAt == e.Addr }

// Unwrap returns the cause.
func (e *DialError) Unwrap() error { return e.Err }

// Is reports whether target is ErrUnavailable and the obstacle may pass.
func (e *DialError) Is(target error) bool {
	return target == ErrUnavailable && e.Obstacle < ObstacleTorch
}

// RefusedSince returns since when each attempt to dial a store has found that nobody listens there. err is the error of
// the latest attempt, and since the result after the attempt before; zero means that there is no such time.
func RefusedSince(since time.Time, err error) time.Time {
	failed, ok := errors.AsType[*DialError](err)
	switch {
	case !ok || failed.Obstacle != ObstacleRefused:
		return time.Time{}
	case since.IsZero():
		return time.Now()
	}
	return since
}

// errOf returns the error for a result code and its message. It returns nil for codeDone.
func errOf(c resultCode, message string) error {
	switch {
	case c == codeDone:
		return nil
	case int(c) < len(codes) && codes[c] != nil:
		if message = printable(message); message == "" {
			return codes[c]
		}
		return fmt.Errorf("%w: %s", codes[c], message)
	}
	return errors.New(printable(message))
}

// codeOf returns the result code of an error and its message. The message does not repeat the meaning of the code.
func codeOf(err error) (resultCode, string) {
	for c, e := range codes {
		if e != nil && errors.Is(err, e) {
			return resultCode(c), strings.TrimPrefix(strings.TrimPrefix(err.Error(), e.Error()), ": ")
		}
	}
	return codeInvalid, err.Error()
}

// errClosed is the error of a session that its owner has closed.
var errClosed = fmt.Errorf("%w: it was closed", ErrSessionLost)

// unavailable returns an ErrUnavailable that wraps the cause of ctx.
func unavailable(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
}
