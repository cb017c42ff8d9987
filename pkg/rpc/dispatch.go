package rpc

import (
	"context"
	"maps"
	"slices"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// dispatcher is the [Handler] of a group: it finds functions by name and runs them. A call may come as soon as the backend listens,
// before there is a Group for it; it waits for that.
type dispatcher struct {
	functions map[string]function
	groupSet  chan struct{} // closed when group is known: nil after a failed Init
	group     *Group
}

func newDispatcher(functions map[string]function) *dispatcher {
	return &dispatcher{functions: functions, groupSet: make(chan struct{})}
}

// setGroup lets the calls in, or refuses them all if g is nil. It is called once.
func (d *dispatcher) setGroup(g *Group) {
	d.group = g
	close(d.groupSet)
}

// handle is a [Handler]. Its error is a *RemoteError, *NoFunctionError, *EncodingError, ErrShutdown, or that of ctx.
func (d *dispatcher) handle(ctx context.Context, from WorkerInfo, name string, payload []byte) ([]byte, error) {
	fn, ok := d.functions[name]
	if !ok {
		return nil, newNoFunctionError(slices.Sorted(maps.Keys(d.functions)))
	}
	select {
	case <-d.groupSet:
	case <-ctx.Done():
		return nil, kvstore.ContextError(ctx)
	}
	if d.group == nil {
		return nil, ErrShutdown
	}
	ctx = context.WithValue(ctx, incomingKey{}, &Call{Group: d.group, From: from})
	return fn.run(ctx, d.group.Self(), payload)
}

// Call is what a function can know of the call that it serves.
type Call struct {
	// Group is the one in which it was called; nested calls go through it.
	Group *Group
	// From is the caller.
	From WorkerInfo
}

// incomingKey is the context's key of a *Call.
type incomingKey struct{}

// Incoming returns the call that a function serves. It wants the function's context, or one made from it; of any other it is false.
func Incoming(ctx context.Context) (Call, bool) {
	if call, ok := ctx.Value(incomingKey{}).(*Call); ok {
		return *call, true
	}
	return Call{}, false
}
