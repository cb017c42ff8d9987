package telemetry

import "context"

// inTime returns the result of f, which may block on a disk that does not answer. It returns false once ctx ends; f
// keeps running, because a blocked system call cannot be canceled.
func inTime[T any](ctx context.Context, f func() T) (result T, ok bool) {
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case result = <-done:
		return result, true
	case <-ctx.Done():
		return result, false
	}
}
