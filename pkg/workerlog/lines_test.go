package workerlog

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// pause among the chunks of a stream is a flush, as after an idle time of 50 ms.
const pause = "·"

// splitAll feeds the chunks of one stream and then its end to a splitter. It returns the text of its batches on a
// console of its own.
func splitAll(t testing.TB, prefix string, chunks ...string) string {
	t.Helper()
	out := newMemoryConsole(t)
	w := out.writer()
	l := &lineSplitter{prefix: newStampedPrefix(Prefix{prefix})}
	for _, chunk := range append(chunks, pause) {
		feedAll(t, l, w, chunk)
	}
	return out.text(t)
}

func feedAll(t testing.TB, l *lineSplitter, w *consoleWriter, chunk string) {
	t.Helper()
	if chunk == pause {
		put(t, w, l.flush())
		return
	}
	for p := []byte(chunk); len(p) > 0; {
		b, taken := l.feed(p)
		if len(b.buf) == 0 && taken < len(p) {
			t.Fatal("feed stopped without a full batch")
		}
		put(t, w, b)
		p = p[taken:]
	}
}

func put(t testing.TB, w *consoleWriter, b batch) {
	t.Helper()
	if err := w.put(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// memoryConsole is a sink whose output is read back from a file.
type memoryConsole struct{ *sink }

func newMemoryConsole(t testing.TB) memoryConsole {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "console"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return memoryConsole{newSink("test", f)}
}

func (c memoryConsole) text(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile(c.file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestLineSplitter(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for _, tt := range []struct {
		name   string
		prefix string
		chunks []string
		want   string
	}{
		{"nothing", "P:", nil, ""},
		{"whole lines", "P:", []string{"a\nb\n"}, "P:a\nP:b\n"},
		{"empty lines", "P:", []string{"\n\n"}, "P:\nP:\n"},
		{"line in chunks", "P:", []string{"he", "l", "lo\nwor", "ld\n"}, "P:hello\nP:world\n"},
		{"no newline at the end", "P:", []string{"a\nb"}, "P:a\nP:b"},
		{"prompt", "P:", []string{"name? ", pause, "yes\n"}, "P:name? yes\n"},
		{"prompt in parts", "P:", []string{"a", pause, "b", pause, "c\nd"}, "P:abc\nP:d"},
		{"bar redraws with its prefix", "P:", []string{"\r 1%", pause, "\r 2%", pause, "\r 3%\n"}, "P:\rP: 1%\rP: 2%\rP: 3%\n"},
		{"bar that ends in CR", "P:", []string{"1%\r", "2%\r", pause, "3%\r", pause}, "P:1%\rP:2%\rP:3%\r"},
		{"CRLF", "P:", []string{"a\r\nb\r\n"}, "P:a\r\nP:b\r\n"},
		{"CRLF in two chunks", "P:", []string{"a\r", "\nb\r", "\n"}, "P:a\r\nP:b\r\n"},
		{"CRLF with a pause inside", "P:", []string{"a\r", pause, "\nb"}, "P:a\r\nP:b"},
		{"CRs before LF", "P:", []string{"a\r\r\n"}, "P:a\rP:\r\n"},
		{"broken UTF-8 and NUL", "P:", []string{"\xff\xfe\x00\xc3", "\x28\n"}, "P:\xff\xfe\x00\xc3\x28\n"},
		{"no prefix", "", []string{"a", pause, "b\nc\r", "d"}, "ab\nc\rd"},
		{"longest line", "P:", []string{long, "\n"}, "P:" + long + "\n"},
		{"longest line with CRLF", "P:", []string{long + "\r", "\n"}, "P:" + long + "\r\n"},
		{"longest line with CR", "P:", []string{long + "\r", "y\n"}, "P:" + long + "\rP:y\n"},
		{"too long line", "P:", []string{long + "y\n"}, "P:" + long + splitMark + "P:y\n"},
		{"too long line in chunks", "P:", []string{long[1:], "xy", pause, "z\n"}, "P:" + long + splitMark + "P:yz\n"},
		{"much too long line", "P:", []string{long, long, long + "\n"}, "P:" + long + splitMark + "P:" + long + splitMark + "P:" + long + "\n"},
		{"too long line without prefix", "", []string{long + long + "y\nz\n"}, long + long + "y\nz\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, splitAll(t, tt.prefix, tt.chunks...)); diff != "" {
				t.Errorf("console (-want +got):\n%s", diff[:min(len(diff), 2000)])
			}
		})
	}
}

// An empty batch has no bytes, so that nothing is written and no state changes.
func TestLineSplitterHoldsBack(t *testing.T) {
	l := &lineSplitter{prefix: newStampedPrefix(Prefix{"P:"})}
	for _, chunk := range []string{"a", "b", "c\r"} {
		if b, taken := l.feed([]byte(chunk)); len(b.buf) != 0 || taken != len(chunk) {
			t.Errorf("feed(%q) = %q, %d: want nothing yet", chunk, b.buf, taken)
		}
	}
	l.flush()
	if b := l.flush(); len(b.buf) != 0 {
		t.Errorf("second flush = %q, want nothing", b.buf)
	}
}

// A batch of many short lines stays near batchSize, whatever the prefix.
func TestLineSplitterBoundsBatch(t *testing.T) {
	l := &lineSplitter{prefix: newStampedPrefix(Prefix{strings.Repeat("p", 1000)})}
	p := bytes.Repeat([]byte{'\n'}, 10_000)
	for len(p) > 0 {
		b, taken := l.feed(p)
		if len(b.buf) > batchSize+2000 {
			t.Fatalf("batch of %d bytes", len(b.buf))
		}
		p = p[taken:]
	}
}

// For any chunking and any pauses the console text less prefixes is the input, and
// every line that no pause cut is whole and has one prefix.
func TestLineSplitterKeepsInput(t *testing.T) {
	const prefix = "\x01P:" // not in the input
	rapid.Check(t, func(rt *rapid.T) {
		piece := rapid.SampledFrom([]string{"a", "bc", "\n", "\r", "\r\n", "\xff", strings.Repeat("z", 300), pause})
		var chunks []string
		for _, pieces := range rapid.SliceOf(rapid.SliceOfN(piece, 1, 8)).Draw(rt, "chunks") {
			for chunk := range strings.SplitAfterSeq(strings.Join(pieces, ""), pause) {
				chunk, paused := strings.CutSuffix(chunk, pause)
				chunks = append(chunks, chunk)
				if paused {
					chunks = append(chunks, pause)
				}
			}
		}
		input := strings.ReplaceAll(strings.Join(chunks, ""), pause, "")
		got := splitAll(t, prefix, chunks...)
		if text := strings.ReplaceAll(got, prefix, ""); text != input {
			rt.Fatalf("chunks %q:\n got %q\nwant %q", chunks, text, input)
		}
		if want := prefixEach(prefix, input); got != want {
			rt.Fatalf("chunks %q:\n got %q\nwant %q", chunks, got, want)
		}
	})
}

// prefixEach is the plain meaning of the splitter: a prefix at every line's start.
func prefixEach(prefix, text string) string {
	var out strings.Builder
	start := true
	for i := range len(text) {
		if start {
			out.WriteString(prefix)
		}
		out.WriteByte(text[i])
		start = text[i] == '\n' || text[i] == '\r' && i+1 < len(text) && text[i+1] != '\n'
	}
	return out.String()
}

// Several streams on one console: whatever they write and whenever they pause,
// each one's text is all there in order, no line holds bytes of two streams, and
// all newlines that the console adds stand where an unfinished line was broken off.
func TestConsoleNeverMixesLines(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		out := newMemoryConsole(t)
		type stream struct {
			letter string
			lines  *lineSplitter
			w      *consoleWriter
			input  strings.Builder
		}
		var streams []*stream
		for _, letter := range []string{"a", "b", "c"} {
			prefix := rapid.SampledFrom([]string{"", "<" + letter + ">"}).Draw(rt, "prefix")
			streams = append(
				streams,
				&stream{letter: letter, lines: &lineSplitter{prefix: newStampedPrefix(Prefix{prefix})}, w: out.writer()},
			)
		}
		step := rapid.SampledFrom([]string{"x", "xx\n", "\n", "x\nx", "\r\n", pause})
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			s := rapid.SampledFrom(streams).Draw(rt, "stream")
			chunk := strings.ReplaceAll(step.Draw(rt, "chunk"), "x", s.letter)
			if chunk != pause {
				s.input.WriteString(chunk)
			}
			feedAll(t, s.lines, s.w, chunk)
		}
		for _, s := range streams {
			feedAll(t, s.lines, s.w, pause)
		}

		got := out.text(t)
		for _, s := range streams {
			var own strings.Builder
			for line := range strings.SplitAfterSeq(got, "\n") {
				if line = strings.ReplaceAll(line, string(s.lines.prefix.text), ""); strings.Contains(line, s.letter) {
					if strings.Trim(line, s.letter+"\r\n") != "" {
						rt.Fatalf("mixed line %q in\n%q", line, got)
					}
					own.WriteString(line)
				}
			}
			letters := func(text string) int { return strings.Count(text, s.letter) }
			if letters(own.String()) != letters(s.input.String()) {
				rt.Fatalf("stream %s: %q became %q", s.letter, s.input.String(), got)
			}
		}
	})
}
