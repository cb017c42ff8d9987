package pystack

import (
	"path/filepath"
	"testing"
)

// BenchmarkDump measures with hang.py: 8 threads with 531 frames, 500 of them in one thread.
func BenchmarkDump(b *testing.B) {
	script, err := filepath.Abs("testdata/hang.py")
	if err != nil {
		b.Fatal(err)
	}
	run := start(b, nil, python(b), script)
	run.line()
	p := mustOpen(b, run.pid)
	b.Run("Open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			mustOpen(b, run.pid)
		}
	})
	b.Run("Threads", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			mustThreads(b, p)
		}
	})
	b.Run("MainThread", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := p.MainThread(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
