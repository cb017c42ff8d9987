package workerlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// expired is a context that has ended.
func expired(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// startStream opens and starts a stream and returns a worker's end of it.
func startStream(t testing.TB, out Output, c *Console, std StreamSet) (*Stream, *os.File) {
	t.Helper()
	s, err := OpenStream(out, c, std)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Dup(int(s.ChildFile().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	worker := os.NewFile(uintptr(fd), "worker")
	t.Cleanup(func() { worker.Close() })
	s.Start()
	return s, worker
}

func write(t testing.TB, f *os.File, text string) {
	t.Helper()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func finish(t testing.TB, s *Stream, worker *os.File) {
	t.Helper()
	worker.Close()
	if err := s.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestStreamGoesWhereItShould(t *testing.T) {
	for _, tt := range []struct {
		name                              string
		file, console, filter             bool
		prefix                            string
		wantFile, wantConsole, wantFilter string
	}{
		{name: "nowhere"},
		{name: "file", file: true, wantFile: "one\r\ntwo"},
		{name: "console", console: true, wantConsole: "one\r\ntwo"},
		{name: "tee", file: true, console: true, prefix: "P:", wantFile: "one\r\ntwo", wantConsole: "P:one\r\nP:two"},
		{name: "filtered", file: true, console: true, filter: true, prefix: "P:", wantFile: "one\r\ntwo", wantConsole: "P:one\r\nP:two", wantFilter: "P:two\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			screen := newFile(t)
			dir := t.TempDir()
			out := Output{Console: tt.console, Prefix: Prefix{tt.prefix}}
			if tt.file {
				out.File = filepath.Join(dir, "log")
			}
			if tt.filter {
				out.Filters, out.FilteredFile = []string{"none", "wo"}, filepath.Join(dir, "filtered")
			}
			s, worker := startStream(t, out, NewConsole(screen, screen), Stdout)
			write(t, worker, "one\r\ntwo")
			finish(t, s, worker)
			got := map[string]string{"console": readFile(t, screen.Name())}
			want := map[string]string{"console": tt.wantConsole}
			if tt.file {
				got["file"], want["file"] = readFile(t, out.File), tt.wantFile
			}
			if tt.filter {
				got["filter"], want["filter"] = readFile(t, out.FilteredFile), tt.wantFilter
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"one", "two"}, s.Tail()); diff != "" {
				t.Errorf("tail (-want +got):\n%s", diff)
			}
		})
	}
}

// A stream that is only redirected is the file itself, without a goroutine.
func TestStreamRedirectedIsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, worker := startStream(t, Output{File: path}, nil, Stdout)
	defer worker.Close()
	if err := s.Wait(expired(t)); err != nil {
		t.Error(err)
	}
	write(t, worker, "new\n")
	if diff := cmp.Diff("new\n", readFile(t, path)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"new"}, s.Tail()); diff != "" {
		t.Errorf("tail while the worker runs (-want +got):\n%s", diff)
	}
}

// A worker's end must block: most programs do not expect EAGAIN on stdout.
func TestStreamChildEndBlocks(t *testing.T) {
	s, err := OpenStream(Output{}, nil, Stdout)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Discard()
	if nonblocking(t, s.ChildFile()) {
		t.Error("the worker's end of the pipe is non-blocking")
	}
}

func TestStreamAbandoned(t *testing.T) {
	dir := t.TempDir()
	for _, out := range []Output{{}, {File: filepath.Join(dir, "a")}, {File: filepath.Join(dir, "b"), Console: true, Filters: []string{"x"}, FilteredFile: filepath.Join(dir, "c")}} {
		s, err := OpenStream(out, NewConsole(os.Stdout, os.Stderr), Stdout)
		if err != nil {
			t.Fatal(err)
		}
		s.Discard()
		if _, err := s.ChildFile().Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%+v: the worker's end is open: %v", out, err)
		}
	}
}

func TestOpenStreamRefuses(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none", "log")
	for _, out := range []Output{{File: missing}, {Console: true, Filters: []string{"x"}, FilteredFile: missing}} {
		if s, err := OpenStream(out, nil, Stderr); err == nil || !strings.Contains(err.Error(), missing) ||
			!strings.Contains(err.Error(), "stderr") {
			t.Errorf("OpenStream(%+v) = %v, %v", out, s, err)
		}
	}
}

// A prompt appears although its line is unfinished, and so does a progress bar. Later output continues the line.
func TestStreamShowsUnfinishedLines(t *testing.T) {
	read, screen := newPipe(t)
	c := NewConsole(screen, screen)
	defer c.Close()
	s, worker := startStream(t, Output{Console: true, Prefix: Prefix{"P:"}}, c, Stdout)
	for _, tt := range []struct{ written, shown string }{
		{"name? ", "P:name? "},
		{"yes\n", "yes\n"},
		{"\r10%", "P:\rP:10%"},
		{"\r20%", "\rP:20%"},
		{"\n", "\n"},
	} {
		write(t, worker, tt.written)
		got := make([]byte, len(tt.shown))
		if _, err := io.ReadFull(read, got); err != nil || string(got) != tt.shown {
			t.Fatalf("after %q the console shows %q (%v), want %q", tt.written, got, err, tt.shown)
		}
	}
	finish(t, s, worker)
}

// Arbitrary bytes reach the file, and without a prefix the console, unchanged.
func TestStreamKeepsBinary(t *testing.T) {
	data := make([]byte, 5<<20)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(data)
	screen := newFile(t)
	path := filepath.Join(t.TempDir(), "log")
	s, worker := startStream(t, Output{File: path, Console: true}, NewConsole(screen, screen), Stdout)
	write(t, worker, string(data))
	write(t, worker, strings.Repeat("x", 3*maxLine)) // and a line without an end
	finish(t, s, worker)
	want := string(data) + strings.Repeat("x", 3*maxLine)
	if readFile(t, path) != want {
		t.Error("the file differs from what was written")
	}
	if readFile(t, screen.Name()) != want {
		t.Error("the console differs from what was written")
	}
}

// Four workers tee both streams through pipes: every byte is in the files, and
// every line is whole on the console.
func TestStreamTeeOfManyWorkers(t *testing.T) {
	const lines, lineSize = 5000, 200
	read, screen := newPipe(t)
	c := NewConsole(screen, screen)
	defer c.Close()
	dir := t.TempDir()
	var streams []*Stream
	var workers []*exec.Cmd
	for i := range 4 {
		letter := string(rune('a' + i))
		s, err := OpenStream(
			Output{File: filepath.Join(dir, letter), Console: true, Prefix: Prefix{"<" + letter + ">"}},
			c,
			Stdout,
		)
		if err != nil {
			t.Fatal(err)
		}
		worker := exec.Command(os.Args[0], fmt.Sprint(lines*lineSize), fmt.Sprint(lineSize), "1000", letter)
		worker.Env = append(os.Environ(), helperEnv+"=produce")
		worker.Stdout = s.ChildFile()
		if err := worker.Start(); err != nil {
			t.Fatal(err)
		}
		s.Start()
		streams, workers = append(streams, s), append(workers, worker)
	}
	shown := make(chan string)
	go func() {
		data, _ := io.ReadAll(read)
		shown <- string(data)
	}()
	for i, s := range streams {
		if err := errors.Join(s.Wait(t.Context()), workers[i].Wait()); err != nil {
			t.Error(err)
		}
	}
	c.Close()
	screen.Close()

	console := map[byte][]byte{}
	for line := range strings.SplitAfterSeq(<-shown, "\n") {
		if line == "" {
			continue
		}
		if len(line) != 3+lineSize || line[1] != line[3] {
			t.Fatalf("line %q is not whole", line)
		}
		console[line[1]] = append(console[line[1]], line[3:]...)
	}
	for _, letter := range "abcd" {
		var want []byte
		for i := range lines {
			want = append(want, producedLine(string(letter), i, lineSize)...)
		}
		if !bytes.Equal(want, console[byte(letter)]) {
			t.Errorf("console lacks lines of worker %c", letter)
		}
		if readFile(t, filepath.Join(dir, string(letter))) != string(want) {
			t.Errorf("file of worker %c differs", letter)
		}
	}
}

// If the file cannot be written, one warning says so at once, and the console still receives everything.
func TestStreamFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		testenv.Missing(t, "needs /dev/full")
	}
	screen := newFile(t)
	warned := make(chan error, 10)
	s, worker := startStream(t, Output{
		File: "/dev/full", Console: true,
		Filters: []string{"line"}, FilteredFile: "/dev/full",
		Warn: func(err error) { warned <- err },
	}, NewConsole(screen, screen), Stderr)
	write(t, worker, "line 1\n")
	if err := <-warned; !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "stderr") {
		t.Errorf("warned %v", err)
	}
	write(t, worker, "line 2\n")
	worker.Close()
	if err := s.Wait(t.Context()); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Wait = %v, want ENOSPC", err)
	}
	if len(warned) > 0 {
		t.Errorf("warned again: %v", <-warned)
	}
	if diff := cmp.Diff("line 1\nline 2\n", readFile(t, screen.Name())); diff != "" {
		t.Errorf("console (-want +got):\n%s", diff)
	}
}

// If the console's reader goes away, workers continue and their files are complete.
func TestStreamOutlivesConsole(t *testing.T) {
	read, screen := newPipe(t)
	c := NewConsole(screen, screen)
	defer c.Close()
	path := filepath.Join(t.TempDir(), "log")
	s, worker := startStream(t, Output{File: path, Console: true}, c, Stdout)
	write(t, worker, "line 1\n")
	if _, err := read.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	read.Close()
	want := "line 1\n" + strings.Repeat("line\n", 1<<20)
	write(t, worker, want[7:])
	finish(t, s, worker)
	if readFile(t, path) != want {
		t.Error("the file is not complete")
	}
	if err := c.Err(); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("Err() = %v, want EPIPE", err)
	}
}

// A process that outlives the job holds the worker's end. Wait ends in time, and the file has everything written
// before.
func TestStreamWaitGivesUpPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	screen := newFile(t)
	s, worker := startStream(t, Output{File: path, Console: true}, NewConsole(screen, screen), Stdout)
	write(t, worker, "before\n")
	start := time.Now()
	err := s.Wait(expired(t))
	if err == nil || !strings.Contains(err.Error(), "stdout") || !strings.Contains(err.Error(), "open") {
		t.Errorf("Wait = %v", err)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("Wait took %v", took)
	}
	if diff := cmp.Diff("before\n", readFile(t, path)); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	if again := s.Wait(expired(t)); again == nil || again.Error() != err.Error() {
		t.Errorf("second Wait = %v", again)
	}
}

// Nothing reads the console. Wait ends in time, the file receives the rest of the pipe, and the error counts what was
// not shown.
func TestStreamWaitGivesUpConsole(t *testing.T) {
	_, screen := newPipe(t)
	c := NewConsole(screen, screen)
	defer c.Close()
	path := filepath.Join(t.TempDir(), "log")
	s, worker := startStream(t, Output{File: path, Console: true}, c, Stdout)
	// More than the console's pipe and one read hold, less than with the worker's pipe.
	text := strings.Repeat("0123456789abcde\n", (2*pipeSize+readSize)/16-4000)
	write(t, worker, text)
	worker.Close()
	err := s.Wait(expired(t))
	if err == nil || !strings.Contains(err.Error(), "did not reach the console") {
		t.Errorf("Wait = %v", err)
	}
	if got := readFile(t, path); got != text {
		t.Errorf("the file has %d of %d bytes", len(got), len(text))
	}
	if c.Err() != nil {
		t.Errorf("the console is lost for all: %v", c.Err())
	}
}

// The workers of a node share the filtered file; its lines are whole.
func TestStreamsShareFilteredFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "filtered")
	var streams []*Stream
	var workers []*os.File
	for i := range 3 {
		s, worker := startStream(
			t,
			Output{Prefix: Prefix{fmt.Sprintf("%d:", i)}, Filters: []string{"keep"}, FilteredFile: path},
			nil,
			Stdout,
		)
		streams, workers = append(streams, s), append(workers, worker)
	}
	for range 500 {
		for _, worker := range workers {
			write(t, worker, "keep this\ndrop this\nke")
			write(t, worker, "ep that\r\n")
		}
	}
	for i, s := range streams {
		finish(t, s, workers[i])
	}
	got := map[string]int{}
	for line := range strings.Lines(readFile(t, path)) {
		got[line]++
	}
	want := map[string]int{}
	for i := range 3 {
		want[fmt.Sprintf("%d:keep this\n", i)] = 500
		want[fmt.Sprintf("%d:keep that\n", i)] = 500
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
