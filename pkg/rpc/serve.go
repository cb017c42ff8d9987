package rpc

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/elasticrun/elasticrun/pkg/rpc/membership"
)

// answer is the [transport.Handler] of the agent.
func (a *grpcAgent) answer(ctx context.Context, message []byte) [][]byte {
	return encodeAnswer(a.serve(ctx, message))
}

func (a *grpcAgent) serve(ctx context.Context, message []byte) ([]byte, error) {
	r, err := decodeRequest(message)
	switch {
	case err != nil:
		return nil, err
	case r.target != a.self.Incarnation:
		return nil, ErrReplaced
	case r.function == "":
		return nil, a.reach(ctx, r.payload)
	case len(r.payload) > a.limit:
		return nil, &TooLargeError{What: directionRequest, Size: int64(len(r.payload)), Limit: int64(a.limit)}
	}
	if err := a.work.Begin(ctx); err != nil {
		return nil, ErrShutdown // or the caller is gone and reads no answer
	}
	defer a.work.End()
	return a.run(ctx, r.from, r.function, r.payload)
}

// run passes a call to the handler. The caller has counted it as work.
func (a *grpcAgent) run(ctx context.Context, from WorkerInfo, function string, payload []byte) ([]byte, error) {
	answer, err := a.handle(ctx, from, function, payload)
	if err == nil && len(answer) > a.limit {
		return nil, &TooLargeError{What: directionAnswer, Size: int64(len(answer)), Limit: int64(a.limit)}
	}
	return answer, err
}

// reachRequest returns the payload of a call without a function name, which members use among themselves. The called
// member answers when its view has reached the version. In a static group the call only checks that calls arrive.
func reachRequest(version int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(version)) }

func (a *grpcAgent) reach(ctx context.Context, payload []byte) error {
	if len(payload) != 8 {
		return errMalformed
	}
	if version := int64(binary.BigEndian.Uint64(payload)); a.dynamic != nil && version > 0 {
		err := a.dynamic.WaitVersion(ctx, version)
		if errors.Is(err, membership.ErrShutdown) || errors.Is(err, membership.ErrEvicted) {
			return ErrShutdown
		}
		return err
	}
	return nil
}
