package rpc

import (
	"context"
	"fmt"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// Future is the pending answer of a call that [Func.Go] started. It is safe for concurrent use.
type Future[Resp any] struct {
	worker, function string
	done             chan struct{} // closed when resp and err are set

	resp Resp
	err  error
}

// Done returns a channel that is closed when the call has ended.
func (f *Future[Resp]) Done() <-chan struct{} { return f.done }

// Wait waits for the end of the call and returns what [Func.Call] returns. If ctx ends first, Wait returns a
// [CallError] and the call continues: it ends with the context that was passed to Go.
func (f *Future[Resp]) Wait(ctx context.Context) (Resp, error) {
	select {
	case <-f.done:
		return f.resp, f.err
	default:
	}
	select {
	case <-f.done:
		return f.resp, f.err
	case <-ctx.Done():
		var none Resp
		err := fmt.Errorf("no answer yet: %w", kvstore.ContextError(ctx))
		return none, &CallError{Worker: f.worker, Func: f.function, Err: err}
	}
}
