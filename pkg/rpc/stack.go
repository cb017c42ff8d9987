package rpc

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// WithStack adds the stack of its caller to an error. If a function returns the result, the [RemoteError] of its caller
// shows the stack. WithStack returns nil, and an error that already has a stack, unchanged. It costs about a
// microsecond.
func WithStack(err error) error {
	if has := (*stackError)(nil); err == nil || errors.As(err, &has) {
		return err
	}
	frames := make([]uintptr, maxFrames)
	return &stackError{err: err, frames: frames[:runtime.Callers(2, frames)]} // 2: not Callers, not WithStack
}

// stackError is an error with the stack of WithStack.
type stackError struct {
	err    error
	frames []uintptr
}

func (e *stackError) Error() string { return e.err.Error() }
func (e *stackError) Unwrap() error { return e.err }

const (
	maxFrames = 64
	// dispatchFrame is the prefix of the frame that calls a registered function. The frames below it belong to this
	// package.
	dispatchFrame = "github.com/elasticrun/elasticrun/pkg/rpc.Func["
)

// panicStack returns the stack of the panic that a deferred function has recovered, from where it was raised.
func panicStack() string {
	stack := make([]uintptr, 2*maxFrames)
	frames := framesOf(stack[:runtime.Callers(1, stack)])
	raised := slices.IndexFunc(frames, func(f runtime.Frame) bool { return f.Function == "runtime.gopanic" })
	frames = frames[raised+1:]
	for len(frames) > 0 && strings.HasPrefix(frames[0].Function, "runtime.") {
		frames = frames[1:] // frames that raise a panic of the runtime
	}
	return printFrames(frames)
}

func framesOf(stack []uintptr) []runtime.Frame {
	var all []runtime.Frame
	frames := runtime.CallersFrames(stack)
	for more := len(stack) > 0; more; {
		var f runtime.Frame
		f, more = frames.Next()
		all = append(all, f)
	}
	return all
}

// printFrames formats a stack from the innermost frame to the called function.
func printFrames(frames []runtime.Frame) string {
	var text strings.Builder
	for _, f := range frames {
		if strings.HasPrefix(f.Function, dispatchFrame) {
			break
		}
		fmt.Fprintf(&text, "\t%s\n\t\t%s:%d\n", f.Function, f.File, f.Line)
	}
	return text.String()
}
