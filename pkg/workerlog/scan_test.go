package workerlog

import (
	"path/filepath"
	"testing"
	"time"
)

// witness is a Scanner that records what it receives.
type witness struct {
	text string
	last time.Time
}

func (w *witness) Scan(p []byte, read time.Time) { w.text, w.last = w.text+string(p), read }

// A Scanner receives every byte of a stream, and when it was read, wherever else the bytes go.
func TestStreamIsScanned(t *testing.T) {
	for name, out := range map[string]Output{
		"dropped": {},
		"teed":    {File: filepath.Join(t.TempDir(), "log"), Console: true},
	} {
		t.Run(name, func(t *testing.T) {
			var w witness
			out.Scan = &w
			began := time.Now()
			s, worker := startStream(t, out, nil, Stderr)
			write(t, worker, "one\ntwo")
			write(t, worker, "\nthree")
			finish(t, s, worker)
			if w.text != "one\ntwo\nthree" || w.last.Before(began) || w.last.After(time.Now()) {
				t.Errorf("%q at %v", w.text, w.last)
			}
		})
	}
}
