package procs

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestLastLine checks that the last line is that of the stream that was written last.
func TestLastLine(t *testing.T) {
	spec := shell(t, 0, "echo loss 0.5; echo; echo warning >&2")
	spec.Stderr.File = filepath.Join(t.TempDir(), "stderr.log")
	g := startGroup(t, spec, shell(t, 1, "echo out"), shell(t, 2, "echo err >&2"), shell(t, 3, "true"))
	for range 4 {
		<-g.Exits()
	}
	stopGroup(t, g, orderly)
	now := time.Now()
	for _, tt := range []struct {
		ahead time.Duration // of stdout
		want  string
	}{{time.Second, "loss 0.5"}, {-time.Second, "warning"}} {
		for file, at := range map[string]time.Time{spec.Stdout.File: now.Add(tt.ahead), spec.Stderr.File: now} {
			if err := os.Chtimes(file, at, at); err != nil {
				t.Fatal(err)
			}
		}
		if got := g.LastLine(0); got != tt.want {
			t.Errorf("stdout is %v ahead: %q", tt.ahead, got)
		}
	}
	for rank, want := range map[int]string{1: "out", 2: "err", 3: "", 7: ""} {
		if got := g.LastLine(rank); got != want {
			t.Errorf("worker %d: %q", rank, got)
		}
	}
}
