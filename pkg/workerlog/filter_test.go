package workerlog

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// filterAll returns what a filter for "keep" and "a,b" writes of the chunks.
func filterAll(t testing.TB, dir string, chunks ...string) string {
	t.Helper()
	out := Output{Prefix: Prefix{"P:"}, Filters: []string{"keep", "a,b"}, FilteredFile: filepath.Join(dir, "filtered")}
	f, err := openFilter(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, chunk := range chunks {
		if err := f.feed([]byte(chunk)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	return readFile(t, out.FilteredFile)
}

func TestLineFilter(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for _, tt := range []struct {
		name   string
		chunks []string
		want   string
	}{
		{"nothing", nil, ""},
		{"no match", []string{"one\ntwo\n"}, ""},
		{"matches", []string{"keep\none\nxa,by\n"}, "P:keep\nP:xa,by\n"},
		{"both needles, one copy", []string{"keep a,b\n"}, "P:keep a,b\n"},
		{"match across chunks", []string{"one\nke", "e", "p\ntwo"}, "P:keep\n"},
		{"line across chunks", []string{"keep", " on\n"}, "P:keep on\n"},
		{"no match across lines", []string{"ke\nep\n", "ke\rep\n"}, ""},
		{"CRLF", []string{"keep\r\nkeep\r", "\n"}, "P:keep\nP:keep\n"},
		{"progress bar", []string{"1%\rkeep 2%\r3%\n"}, "P:keep 2%\n"},
		{"unfinished line", []string{"one\nkeep"}, "P:keep\n"},
		{"binary", []string{"\xff\x00keep\xfe\n"}, "P:\xff\x00keep\xfe\n"},
		{"too long line", []string{"keep" + long[4:], "xkeep\n"}, "P:keep" + long[4:] + "\nP:xkeep\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, filterAll(t, t.TempDir(), tt.chunks...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff[:min(len(diff), 2000)])
			}
		})
	}
}

// The chunks of a stream do not affect the result.
func TestLineFilterIgnoresChunks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		piece := rapid.SampledFrom([]string{"keep", "ke", "ep", "a,b", "\n", "\r\n", "\r", "zz"})
		chunks := rapid.SliceOf(piece).Draw(rt, "chunks")
		whole := filterAll(t, t.TempDir(), strings.Join(chunks, ""))
		if diff := cmp.Diff(whole, filterAll(t, t.TempDir(), chunks...)); diff != "" {
			rt.Fatalf("(-whole +chunks):\n%s", diff)
		}
	})
}
