//go:build !linux || !amd64

package siginfo

import "syscall"

// Watcher is for systems and processors on which no test has run the handler.
type Watcher struct{}

// Watch returns nil.
func Watch(...syscall.Signal) *Watcher { return nil }

// Watches returns false.
func (*Watcher) Watches(syscall.Signal) bool { return false }

// Take returns that nothing is known.
func (*Watcher) Take(syscall.Signal) Origin { return Origin{} }

// Close does nothing.
func (*Watcher) Close() {}
