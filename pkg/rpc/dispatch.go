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
	settled   chan struct{} // closed when group is known: nil after a failed Init
	group     *Group
}

func newDispatcher(functions map[string]function) *dispatcher {
	return &dispatcher{functions: functions, settled: make(chan struct{})}
}

// settle lets the calls in, or refuses them all if g is nil. It is called once.
func (d *dispatcher) settle(g *Group) {
	d.group = g
	close(d.settled)
}

// handle is a [Handler]. Its error is a *RemoteError, *NoFunctionError, *EncodingError, ErrShutdown, or that of ctx.
func (d *dispatcher) handle(ctx context.Context, from WorkerInfo, name string, payload []byte) ([]byte, error) {
	fn, ok := d.functions[name]
	if !ok {
		return nil, newNoFunctionError(slices.Sorted(maps.Keys(d.functions)))
	}
	select {
	case <-d.settled:
	case <-ctx.Done():
		return nil, kvstore.ContextError(ctx)
	}
	if d.group == nil {
		return nil, ErrShutdown
	}
	ctx = context.WithValue(ctx, incomingKey{}, &Call{Group: d.group, From: from})
	return fn.run(ctx, d.group.Self(), payload)
}
