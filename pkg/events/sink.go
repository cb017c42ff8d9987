package events

import (
	"encoding/json"
	"io"
	"slices"
	"sync"
)

// Event is anything with a name that can be written as JSON: [Status], [Usage].
type Event interface {
	Name() string
	json.Marshaler
}

// Sink takes events.
type Sink interface {
	Emit(Event)
}

// Discard is the sink that keeps nothing (torchrun's "null" handler).
type Discard struct{}

// Emit does nothing.
func (Discard) Emit(Event) {}

// Lines writes each event as one line of JSON (torchrun's "console" handler).
type Lines struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

// NewLines returns a sink that writes to w, one Write an event.
func NewLines(w io.Writer) *Lines { return &Lines{w: w} }

// Emit writes e; after the first error nothing more is written.
func (l *Lines) Emit(e Event) {
	line, err := json.Marshal(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	if err == nil {
		_, err = l.w.Write(append(line, '\n'))
	}
	l.err = err
}

// Err returns the error that ended the writing, if any.
func (l *Lines) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Recorder keeps every event in memory, in order. Its zero value is ready.
type Recorder struct {
	mu     sync.Mutex
	events []Event
}

// Emit keeps e.
func (r *Recorder) Emit(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// Events returns what was emitted so far.
func (r *Recorder) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}
