package rpc

import (
	"context"
	"maps"
	"slices"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// dispatcher is the [Handler] of a group: it finds functions by name and runs them. A call may arrive as soon as the
// backend listens, before Init has made the Group. Such a call waits for the Group.
type dispatcher struct {
	functions map[string]function
	groupSet  chan struct{} // closed when group is final; group is nil after a failed Init
	group     *Group
}

func newDispatcher(functions map[string]function) *dispatcher {
	return &dispatcher{functions: functions, groupSet: make(chan struct{})}
}

// setGroup lets calls in, or refuses all calls if g is nil. Call it once.
func (d *dispatcher) setGroup(g *Group) {
	d.group = g
	close(d.groupSet)
}

// handle is a [Handler]. Its error is a *RemoteError, a *NoFunctionError, an *EncodingError, ErrShutdown, or that of
// ctx.
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
	outer, _ := ctx.Value(incomingKey{}).(*Call)
	ctx = context.WithValue(ctx, incomingKey{}, &Call{Group: d.group, From: from, outer: outer})
	return fn(ctx, d.group.Self(), payload)
}

// Call describes an incoming call to the function that serves it.
type Call struct {
	// Group is the group of the call. A function makes nested calls through it.
	Group *Group
	// From is the caller.
	From WorkerInfo

	outer *Call // the call whose function has called this worker itself, perhaps in another group; nil for none
}

// incomingKey is the context key of a *Call.
type incomingKey struct{}

// Incoming returns the call that a function serves. ctx is the context of the function, or derived from it; for other
// contexts Incoming returns false.
func Incoming(ctx context.Context) (Call, bool) {
	if call, ok := ctx.Value(incomingKey{}).(*Call); ok {
		return *call, true
	}
	return Call{}, false
}

// serves reports whether ctx is the context of a function of a group that is says, or derived from it. Such a function
// may have called, in this worker, a function of another group, whose context then is ctx.
func serves(ctx context.Context, is func(*Group) bool) bool {
	call, _ := ctx.Value(incomingKey{}).(*Call)
	for ; call != nil; call = call.outer {
		if is(call.Group) {
			return true
		}
	}
	return false
}
