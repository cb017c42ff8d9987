package rpc

import "context"

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
