package logview

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// log is a stream's log that a test writes and rotates.
type log struct {
	t     testing.TB
	path  string
	piece int
}

func newLog(t testing.TB) *log {
	t.Helper()
	return &log{t: t, path: filepath.Join(t.TempDir(), "stdout.log")}
}

func (l *log) write(text string) {
	l.t.Helper()
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		l.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		l.t.Fatal(err)
	}
}

func (l *log) rotate() {
	l.t.Helper()
	l.piece++
	if err := os.Rename(l.path, fmt.Sprintf("%s.%d", l.path, l.piece)); err != nil {
		l.t.Fatal(err)
	}
	l.write("")
}

func (l *log) open() *stream {
	s := &stream{path: l.path, std: workerlog.Stdout, clock: newClock(nil, 0, workerlog.Stdout)}
	l.t.Cleanup(s.close)
	return s
}

// rest reads all lines that exist now.
func rest(t interface{ Fatal(...any) }, s *stream) (lines []string) {
	for {
		l, ok, err := s.next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return lines
		}
		lines = append(lines, string(l.text))
	}
}

// However the log is written, rotated and read, no line is lost, duplicated or cut.
func TestStreamReadsEverything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLog(t)
		var written strings.Builder
		if rapid.Bool().Draw(rt, "there") {
			l.write("")
		}
		s := l.open()
		defer s.close()
		var got []string
		text := rapid.SampledFrom(
			[]string{"a", "b\n", "\n", "cc\r\n", strings.Repeat("d", 70<<10), strings.Repeat("e\n", 40<<10)},
		)
		for _, step := range rapid.SliceOf(rapid.SampledFrom([]string{"write", "write", "rotate", "read"})).Draw(rt, "steps") {
			switch step {
			case "write":
				chunk := text.Draw(rt, "text")
				written.WriteString(chunk)
				l.write(chunk)
			case "rotate":
				l.write("")
				l.rotate()
			case "read":
				got = append(got, rest(rt, s)...)
			}
		}
		s.final = true
		got = append(got, rest(rt, s)...)
		want := strings.Split(strings.TrimSuffix(written.String(), "\n"), "\n")
		if written.Len() == 0 {
			want = nil
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("%d lines instead of %d", len(got), len(want))
		}
	})
}

// A line of any length takes bounded memory.
func TestStreamCutsLongLines(t *testing.T) {
	l := newLog(t)
	l.write(strings.Repeat("x", 3*maxLine) + "y\nz")
	s := l.open()
	lines := rest(t, s)
	var lengths []int
	for _, line := range lines {
		lengths = append(lengths, len(line))
	}
	if diff := cmp.Diff([]int{maxLine, maxLine, maxLine, 1}, lengths); diff != "" || cap(s.buf) > 8*maxLine {
		t.Errorf("a buffer of %d bytes, lines (-want +got):\n%s", cap(s.buf), diff)
	}
	if s.final = true; rest(t, s)[0] != "z" {
		t.Error("the unfinished line is missing")
	}
}

// Removed files are skipped, and the times fit the remaining ones.
func TestStreamAfterRemovedPieces(t *testing.T) {
	for _, keep := range []int{0, 1} { // pieces that are left
		l := newLog(t)
		l.write("one\n")
		l.rotate()
		l.write("two\n")
		l.rotate()
		l.write("three\n")
		for piece := 1; piece <= 2-keep; piece++ {
			if err := os.Remove(fmt.Sprintf("%s.%d", l.path, piece)); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(t.TempDir(), "timeline")
		marks := "1000000 0 1 0\n2000000 0 1 4 piece=1\n3000000 0 1 8 piece=2\n4000000 0 1 14\n"
		if err := os.WriteFile(path, []byte(marks), 0o600); err != nil {
			t.Fatal(err)
		}
		s := l.open()
		var err error
		if s.timeline, err = os.Open(path); err != nil {
			t.Fatal(err)
		}
		s.clock = newClock(s.timeline, 0, workerlog.Stdout)
		got := map[string]int64{}
		for {
			line, ok, err := s.next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			got[string(line.text)] = line.at.Unix()
		}
		want := map[string]int64{"three": 3}
		if keep == 1 {
			want["two"] = 2
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d pieces left: seconds (-want +got):\n%s", keep, diff)
		}
	}
}

// A reader whose next files were removed continues with the remaining ones.
func TestStreamOvertaken(t *testing.T) {
	l := newLog(t)
	l.write("one\n")
	s := l.open()
	got := rest(t, s)
	for _, text := range []string{"two\n", "three\n", "four\n"} {
		l.rotate()
		l.write(text)
	}
	for piece := 1; piece <= 2; piece++ {
		if err := os.Remove(fmt.Sprintf("%s.%d", l.path, piece)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"one", "three", "four"}, append(got, rest(t, s)...)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
