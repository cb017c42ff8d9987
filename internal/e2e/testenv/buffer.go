package testenv

import (
	"bytes"
	"sync"
)

// Buffer collects what several goroutines write, such as a server's log, while a test reads it.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
