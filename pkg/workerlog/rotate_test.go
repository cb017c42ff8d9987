package workerlog

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// pieces reads the files of a stream, the oldest first, and removes them.
func pieces(t testing.TB, path string) (texts []string, first int) {
	t.Helper()
	names, err := filepath.Glob(path + ".*")
	if err != nil {
		t.Fatal(err)
	}
	for number := 1; len(names) > 0; number++ {
		name := path + "." + strconv.Itoa(number)
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if first == 0 {
			first = number
		}
		texts = append(texts, string(data))
		names = names[1:]
	}
	return append(texts, readFile(t, path)), first
}

func rotated(t testing.TB, rotation Rotation, chunks ...string) (texts []string, first int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stdout.log")
	l, err := openLogFile(path, rotation, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	for _, chunk := range chunks {
		if n, err := l.Write([]byte(chunk)); n != len(chunk) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", chunk, n, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return pieces(t, path)
}

func TestRotation(t *testing.T) {
	for _, tt := range []struct {
		name      string
		max       int64
		files     int
		chunks    []string
		want      []string
		wantFirst int
	}{
		{"off", 0, 0, []string{"aaa\nbbb\n"}, []string{"aaa\nbbb\n"}, 0},
		{"fits", 8, 0, []string{"aaa\nbbb\n"}, []string{"aaa\nbbb\n"}, 0},
		{"in one write", 8, 0, []string{"aaa\nbbb\nccc\nddd\neee\n"}, []string{"aaa\nbbb\n", "ccc\nddd\n", "eee\n"}, 1},
		{"in several", 8, 0, []string{"aaa\n", "bbb\n", "ccc\n"}, []string{"aaa\nbbb\n", "ccc\n"}, 1},
		{"a line that does not fit", 8, 0, []string{"aaa\nb", "bbbbb\nc"}, []string{"aaa\nbbbbbb\n", "c"}, 1},
		{"a long line", 4, 0, []string{"0123456789\nab\n"}, []string{"0123", "4567", "89\n", "ab\n"}, 1},
		{"a long line in parts", 4, 0, []string{"a\n0", "1234567", "89"}, []string{"a\n0123", "4567", "89"}, 1},
		{"the oldest go", 4, 2, []string{"aa\nbb\ncc\ndd\n"}, []string{"cc\n", "dd\n"}, 3},
		{"only the current", 4, 1, []string{"aa\nbb\ncc\n"}, []string{"cc\n"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, first := rotated(t, Rotation{tt.max, tt.files}, tt.chunks...)
			if diff := cmp.Diff(tt.want, got); diff != "" || first != tt.wantFirst {
				t.Errorf("first %d, want %d (-want +got):\n%s", first, tt.wantFirst, diff)
			}
		})
	}
}

// The files together hold everything that was written. Each ends with a line, and none is longer than allowed except
// for the rest of a line that began in it.
func TestRotationKeepsEverything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		most := rapid.Int64Range(1, 40).Draw(rt, "max")
		piece := rapid.SampledFrom(
			[]string{"a", "bc", "\n", "\r\n", "\xff\x00", strings.Repeat("z", 25), strings.Repeat("y\n", 9)},
		)
		chunks := rapid.SliceOf(rapid.Map(rapid.SliceOfN(piece, 1, 5), func(p []string) string { return strings.Join(p, "") })).
			Draw(rt, "chunks")
		got, _ := rotated(t, Rotation{MaxSize: most}, chunks...)
		if want := strings.Join(chunks, ""); strings.Join(got, "") != want {
			rt.Fatalf("%q\nbecame %q", want, got)
		}
		for i, text := range got {
			rest := text[strings.LastIndexByte(strings.TrimSuffix(text, "\n"), '\n')+1:] // its last line
			switch {
			case int64(len(text)-len(rest)) > most || int64(len(rest)) > most+1:
				rt.Fatalf("piece %d of %q is longer than %d", i, got, most)
			case i == len(got)-1 || strings.HasSuffix(text, "\n"):
			case int64(len(rest)) < most:
				rt.Fatalf("piece %d of %q is cut within a line that fits", i, got)
			}
		}
	})
}

// A file that cannot be rotated continues to grow, and one warning says so.
func TestRotationThatFails(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(t *testing.T, dir string)
	}{
		{"the folder is gone", func(t *testing.T, dir string) {
			t.Helper()
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}},
		{"the name is taken", func(t *testing.T, dir string) {
			t.Helper()
			if err := os.MkdirAll(filepath.Join(dir, "log.1", "x"), 0o700); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "0")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			var warnings []error
			l, err := openLogFile(
				filepath.Join(dir, "log"),
				Rotation{MaxSize: 4},
				func(err error) { warnings = append(warnings, err) },
			)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			old, err := os.Open(filepath.Join(dir, "log"))
			if err != nil {
				t.Fatal(err)
			}
			defer old.Close()
			tt.spoil(t, dir)
			for range 5 {
				if n, err := l.Write([]byte("abc\n")); n != 4 || err != nil {
					t.Fatalf("Write = %d, %v", n, err)
				}
			}
			var all bytes.Buffer
			if _, err := all.ReadFrom(old); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Repeat("abc\n", 5), all.String()); diff != "" {
				t.Errorf("the old file (-want +got):\n%s", diff)
			}
			if len(warnings) != 1 || !strings.Contains(warnings[0].Error(), "continues in the old one") {
				t.Errorf("warnings %q, want one", warnings)
			}
		})
	}
}
