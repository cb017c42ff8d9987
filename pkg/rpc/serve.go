package rpc

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/elasticrun/elasticrun/pkg/rpc/membership"
)

// answer is the agent's [transport.Handler].
func (a *grpcAgent) answer(ctx context.Context, message []byte) [][]byte {
	return encodeAnswer(a.serve(ctx, message))
}

func (a *grpcAgent) serve(ctx context.Context, message []byte) ([]byte, error) {
	r, err := decodeRequest(message)
	switch {
	case err != nil:
		return nil, err
	case r.target != a.static.Incarnation:
		return nil, ErrReplaced
	case r.function == "":
		return nil, a.reach(ctx, r.payload)
	case len(r.payload) > a.limit:
		return nil, &TooLargeError{What: directionRequest, Size: int64(len(r.payload)), Limit: int64(a.limit)}
	}
	if err := a.work.Begin(ctx); err != nil {
		return nil, ErrShutdown // or the caller is not there any more, and nobody will know
	}
	defer a.work.End()
	return a.run(ctx, r.from, r.function, r.payload)
}

// run has the handler answer a call that is counted as work.
func (a *grpcAgent) run(ctx context.Context, from WorkerInfo, function string, payload []byte) ([]byte, error) {
	answer, err := a.handle(ctx, from, function, payload)
	if err == nil && len(answer) > a.limit {
		return nil, &TooLargeError{What: directionAnswer, Size: int64(len(answer)), Limit: int64(a.limit)}
	}
	return answer, err
}

// A call of no function is the members' own: it is answered when the view of who is called has the version in its payload. In a static group
// it says no more than that calls arrive.

// reachRequest is the payload of such a call.
func reachRequest(version int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(version)) }

func (a *grpcAgent) reach(ctx context.Context, payload []byte) error {
	if len(payload) != 8 {
		return errMalformed
	}
	if version := int64(binary.BigEndian.Uint64(payload)); a.dynamic != nil && version > 0 {
		if err := a.dynamic.WaitVersion(ctx, version); errors.Is(err, membership.ErrShutdown) || errors.Is(err, membership.ErrEvicted) {
			return ErrShutdown
		} else if err != nil {
			return err
		}
	}
	return nil
}
