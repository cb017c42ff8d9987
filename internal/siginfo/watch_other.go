//go:build !linux || !amd64

package siginfo

import "syscall"

// Watcher knows nothing: no test has run the handler on this system and processor.
type Watcher struct{}

// Watch returns nil.
func Watch(...syscall.Signal) *Watcher { return nil }

// Watches returns false.
func (*Watcher) Watches(syscall.Signal) bool { return false }

// Take returns that nothing is known.
func (*Watcher) Take(syscall.Signal) Origin { return Origin{} }

// Close does nothing.
func (*Watcher) Close() {}
