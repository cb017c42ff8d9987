package telemetry

import "context"

// inTime returns the result of f, which a disk that does not answer may block. It returns false once ctx ends; f goes
// on then, because nothing can end a system call.
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
