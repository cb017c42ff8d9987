package rpc

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/elasticrun/elasticrun/pkg/rpc/membership"
	"github.com/elasticrun/elasticrun/pkg/rpc/transport"
)

// envelopeLimit is more than an envelope has around its payload.
const envelopeLimit = 2*maxText + 64<<10

// maxParallelConnects is how many members rank 0 calls at once when a static group begins.
const maxParallelConnects = 64

// request addresses a call to a member, and to no other process at its address.
func (a *grpcAgent) request(to membership.Record, function string, payload []byte) request {
	return request{target: to.Incarnation, from: a.Self(), function: function, payload: payload}
}

// warm calls the members of a static group before it begins, in the way of torch's first exchange (seed 004): all call rank 0, and rank 0 calls
// all. So each has been reached, and has reached another, with connections that are as many as members and not their square; others are
// made when they are first needed.
func (a *grpcAgent) connectAll(ctx context.Context, members []membership.Record) error {
	if a.static.ID != 0 {
		return a.checkReach(ctx, members[0])
	}
	calls, ctx := errgroup.WithContext(ctx)
	calls.SetLimit(maxParallelConnects)
	for _, m := range members[1:] {
		calls.Go(func() error { return a.checkReach(ctx, m) })
	}
	return calls.Wait()
}

func (a *grpcAgent) checkReach(ctx context.Context, to membership.Record) error {
	if err := (peers{a}).Sync(ctx, to, 0); err != nil {
		return fmt.Errorf("worker %q does not answer at %s: %w", to.Name, to.Address, err)
	}
	return nil
}

// peers implements [membership.Peers].
type peers struct{ *grpcAgent }

// Sync implements membership.Peers.
func (p peers) Sync(ctx context.Context, to membership.Record, version int64) error {
	message := p.request(to, "", reachRequest(version)).encode()
	answer, err := p.client.Call(ctx, to.Address, message...)
	if errors.Is(err, transport.ErrConnection) && ctx.Err() == nil {
		// It may be the old connection that has broken. A new one finds out whether anybody is there.
		answer, err = p.client.Probe(ctx, to.Address, message...)
	}
	return replyError(answer, err)
}

// Probe implements membership.Peers.
func (p peers) Probe(ctx context.Context, to membership.Record) error {
	return replyError(p.client.Probe(ctx, to.Address, p.request(to, "", reachRequest(0)).encode()...))
}

// replyError says what an answer to a call of the members' own means. A refused connection proves that a member is gone, and so does an answer by
// another worker at its address, or its own word. Whatever else may go wrong, here or on the way, proves nothing.
func replyError(message []byte, err error) error {
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("%w: %w", membership.ErrGone, err)
		}
		return err
	}
	_, err = decodeAnswer(message)
	if errors.Is(err, ErrReplaced) || errors.Is(err, ErrShutdown) {
		return fmt.Errorf("%w: %w", membership.ErrGone, err)
	}
	return err
}

// convertTransportError is the transport's error of a call with that many bytes of payload, in the package's words.
func convertTransportError(err error, payload int) error {
	switch {
	case errors.Is(err, transport.ErrConnection):
		return &transportError{ErrConnection, err}
	case errors.Is(err, transport.ErrVersion):
		return &transportError{ErrVersion, err}
	case errors.Is(err, transport.ErrTimeout):
		return &transportError{ErrTimeout, err}
	case errors.Is(err, transport.ErrProtocol): // something else answers: at its address, or on the way
		return &transportError{ErrConnection, err}
	case errors.Is(err, transport.ErrClosed):
		return ErrShutdown
	}
	if size := (*transport.SizeError)(nil); errors.As(err, &size) {
		limit := max(0, int64(size.Limit-envelopeLimit))
		if size.Answer {
			return &TooLargeError{What: directionAnswer, Size: max(0, int64(size.Size-answerHeader)), Limit: limit}
		}
		return &TooLargeError{What: directionRequest, Size: int64(payload), Limit: limit}
	}
	if errors.Is(err, transport.ErrTooLarge) {
		return &transportError{ErrTooLarge, err}
	}
	return err
}

// transportError is a transport's error that already says what it is, which is one of the package's.
type transportError struct{ kind, err error }

func (e *transportError) Error() string { return e.err.Error() }

// Unwrap has both.
func (e *transportError) Unwrap() []error { return []error{e.kind, e.err} }
