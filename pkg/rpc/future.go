package rpc

import (
	"context"
	"fmt"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// Future is the answer of a call that [Func.Go] has begun. It is safe for concurrent use.
type Future[Resp any] struct {
	worker, function string
	done             chan struct{} // closed when resp and err are there

	resp Resp
	err  error
}

// Done is closed when the call has ended.
func (f *Future[Resp]) Done() <-chan struct{} { return f.done }

// Wait returns what [Func.Call] would have. If ctx ends before the call, the error is a [CallError] that says so, and the call
// goes on: it ends with the context that was given to Go.
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
		return none, &CallError{Worker: f.worker, Func: f.function, Err: fmt.Errorf("no answer yet: %w", kvstore.ContextError(ctx))}
	}
}
