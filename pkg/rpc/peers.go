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

// envelopeLimit is an upper bound of the size of an envelope without its payload.
const envelopeLimit = 2*maxText + 64<<10

// maxParallelConnects is how many members rank 0 calls at once when a static group forms.
const maxParallelConnects = 64

// request returns a call addressed to a member, which no other process at that address accepts.
func (a *grpcAgent) request(to membership.Record, function string, payload []byte) request {
	return request{target: to.Incarnation, from: a.Self(), function: function, payload: payload}
}

// connectAll calls members before a static group is ready, like the dummy round of RPC in torch (torch 2.14
// torch/distributed/rpc/backend_registry.py, _tensorpipe_init_backend_handler). All members call rank 0, and rank 0
// calls all. So each member has been reached and has reached another one, with about 2N connections and not N². Other
// connections are made when they are first needed.
func (a *grpcAgent) connectAll(ctx context.Context, members []membership.Record) error {
	if a.self.ID != 0 {
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
		// The old connection may have broken. A new connection shows whether the member is there.
		answer, err = p.client.Probe(ctx, to.Address, message...)
	}
	return replyError(answer, err)
}

// Probe implements membership.Peers.
func (p peers) Probe(ctx context.Context, to membership.Record) error {
	return replyError(p.client.Probe(ctx, to.Address, p.request(to, "", reachRequest(0)).encode()...))
}

// replyError returns the error of a reply to Sync or Probe. Three results prove that a member is gone: a refused
// connection, another worker at its address, and its own statement. Any other failure proves nothing, because its cause
// may be here or in the network.
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

// convertTransportError converts an error of the transport to an error of this package. payload is the size of the
// request in bytes.
func convertTransportError(err error, payload int) error {
	switch {
	case errors.Is(err, transport.ErrConnection):
		return &transportError{ErrConnection, err}
	case errors.Is(err, transport.ErrVersion):
		return &transportError{ErrVersion, err}
	case errors.Is(err, transport.ErrTimeout):
		return &transportError{ErrTimeout, err}
	case errors.Is(err, transport.ErrProtocol): // another program answers at the address, or a proxy does
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

// transportError is an error of the transport with the matching error of this package. Its text is that of the
// transport.
type transportError struct{ kind, err error }

func (e *transportError) Error() string { return e.err.Error() }

// Unwrap returns both errors.
func (e *transportError) Unwrap() []error { return []error{e.kind, e.err} }
