package workerlog

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestLastLines(t *testing.T) {
	var many, wantMany []string
	for i := range 30 {
		many = append(many, fmt.Sprintf("line %d\n", i))
		if i >= 10 {
			wantMany = append(wantMany, fmt.Sprintf("line %d", i))
		}
	}
	for _, tt := range []struct {
		name string
		in   string
		cut  bool
		want []string
	}{
		{"nothing", "", false, nil},
		{"only line ends", "\n\r\n", false, nil},
		{"one line", "a\n", false, []string{"a"}},
		{"unfinished", "a\nb", false, []string{"a", "b"}},
		{"empty line inside", "a\n\nb\n", false, []string{"a", "", "b"}},
		{"CRLF", "a\r\nb\r\n", false, []string{"a", "b"}},
		{"progress bar", "\r 1%\r 2%\r 3%\ndone\n", false, []string{" 3%", "done"}},
		{"cut", "art of a\nb\n", true, []string{"b"}},
		{"cut within the only line", "art of a\n", true, []string{"art of a"}},
		{"broken UTF-8", "\xff\xfe\n", false, []string{"\xff\xfe"}},
		{"many", strings.Join(many, ""), false, wantMany},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, lastLines([]byte(tt.in), tt.cut)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The tail of a stream that was added in chunks is that of the whole, and so is
// the tail of a file.
func TestTailKeepsTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	rapid.Check(t, func(rt *rapid.T) {
		var tl tail
		var all strings.Builder
		for range rapid.IntRange(0, 12).Draw(rt, "chunks") {
			size := rapid.SampledFrom([]int{1, 10, 100, 5000, tailBytes, 3*tailBytes + 7}).Draw(rt, "size")
			fill := rapid.SampledFrom([]string{"x", "some words\n", "\n"}).Draw(rt, "fill")
			chunk := strings.Repeat(fill, size)[:size]
			tl.add([]byte(chunk))
			all.WriteString(chunk)
		}
		text := all.String()
		end := text[max(0, len(text)-tailBytes):]
		want := lastLines([]byte(end), len(end) < len(text))
		if diff := cmp.Diff(want, first(tl.lines())); diff != "" {
			rt.Fatalf("stream (-want +got):\n%s", diff)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(want, first(fileTail(path))); diff != "" {
			rt.Fatalf("file (-want +got):\n%s", diff)
		}
	})
}

// first returns its first argument.
func first[A, B any](a A, _ B) A { return a }

func TestFileTailOfNothing(t *testing.T) {
	if got, _ := fileTail(filepath.Join(t.TempDir(), "none")); got != nil {
		t.Errorf("tail of a missing file = %q", got)
	}
}
