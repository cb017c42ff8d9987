package logview

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// write writes a file of a run, and the folders above it.
func write(t testing.TB, text string, path ...string) {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// exampleRun is a run of two workers, global ranks 8 and 9, that was restarted once. A line is written every second,
// starting with the line that begins with a.
func exampleRun(t *testing.T) string {
	t.Helper()
	run := filepath.Join(t.TempDir(), "job_abcdefgh")
	head := workerlog.TimelineHead{
		RunID:    "job",
		Host:     "node1",
		NodeRank: 1,
		Base:     8,
		Workers:  2,
		Role:     "r",
	}.String() + "\n"
	write(
		t,
		head+"1000000 0 1 0\n2000000 1 1 0\n3000000 0 2 0\n4000000 0 1 2 quiet=1000000\n5000000 1 2 0\n",
		run,
		"attempt_0",
		"timeline",
	)
	write(t, "a\nd\n", run, "attempt_0", "0", "stdout.log")
	write(t, "c\n", run, "attempt_0", "0", "stderr.log")
	write(t, "b\n", run, "attempt_0", "1", "stdout.log")
	write(t, "e\r\n", run, "attempt_0", "1", "stderr.log")
	write(t, "no log\n", run, "attempt_0", "1", "error.json")
	write(t, head+"6000000 1 1 0\n", run, "attempt_0.r1", "timeline")
	write(t, "f", run, "attempt_0.r1", "1", "stdout.log")
	write(t, head+"7000000 0 1 0\n", run, "attempt_1", "timeline")
	write(t, "g\n", run, "attempt_1", "0", "stdout.log")
	return run
}

func ranks(t *testing.T, s string) workerlog.RankSet {
	t.Helper()
	set, err := workerlog.ParseRanks(s)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestView(t *testing.T) {
	run := exampleRun(t)
	for _, tt := range []struct {
		name string
		opts Options
		want string
	}{
		{"everything", Options{}, "a b c d e f g"},
		{"local rank", Options{LocalRanks: ranks(t, "1")}, "b e f"},
		{"global rank", Options{Ranks: ranks(t, "g9-12")}, "b e f"},
		{"stream", Options{Stream: workerlog.Stderr}, "c e"},
		{"pattern", Options{Pattern: regexp.MustCompile("[b-d]")}, "b c d"},
		{"attempt", Options{Attempt: "0"}, "a b c d e f"},
		{"one attempt", Options{Attempt: "0.r1"}, "f"},
		{"tail", Options{Tail: 3}, "e f g"},
		{"tail of more", Options{Tail: 30}, "a b c d e f g"},
		{"prefix", Options{Attempt: "0.r1", Prefix: "${role_name}${local_rank}=${rank}@${node_rank}${hostname}:${stream}|"}, "r1=9@1node1:stdout|f"},
		{"followed, but ended", Options{Follow: true, Ended: closed()}, "a b c d e f g"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			tt.opts.Note = func(text string) { t.Error(text) }
			if err := New(run, &out, tt.opts).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"), " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestBoundaries checks the line between attempts: it comes before the first line that is shown of a later attempt, and
// only with a prefix.
func TestBoundaries(t *testing.T) {
	run := filepath.Join(t.TempDir(), "job_abcdefgh")
	for name, after := range map[string]string{
		"attempt_0": "", "attempt_0.r1": "a new round: node2 has joined", "attempt_1": "restarted after rank 1 failed: \x1b[2J",
		"attempt_2": "",
	} {
		write(t, workerlog.TimelineHead{RunID: "job", Workers: 1, After: after}.String()+"\n", run, name, "timeline")
		write(t, name[len("attempt_"):]+"\nx\n", run, name, "0", "stdout.log")
	}
	const round, restart, last = "--- attempt 0.r1, a new round: node2 has joined ---",
		`--- attempt 1, restarted after rank 1 failed: \x1b[2J ---`, "--- attempt 2 ---"
	for _, tt := range []struct {
		name string
		opts Options
		want []string
	}{
		{"everything", Options{Prefix: "|"}, []string{"|0", "|x", round, "|0.r1", "|x", restart, "|1", "|x", last, "|2", "|x"}},
		{"without a prefix", Options{}, []string{"0", "x", "0.r1", "x", "1", "x", "2", "x"}},
		{"one attempt", Options{Prefix: "|", Attempt: "1"}, []string{"|1", "|x"}},
		{"its rounds", Options{Prefix: "|", Attempt: "0"}, []string{"|0", "|x", round, "|0.r1", "|x"}},
		{"pattern", Options{Prefix: "|", Pattern: regexp.MustCompile("1$")}, []string{round, "|0.r1", restart, "|1"}},
		{"tail", Options{Prefix: "|", Tail: 4, Terminal: true}, []string{restart, "|1", "|x", last, "|2", "|x"}},
		{"tail within an attempt", Options{Prefix: "|", Tail: 1}, []string{"|x"}},
	} {
		var out bytes.Buffer
		if err := New(run, &out, tt.opts).Run(t.Context()); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(tt.want, strings.Split(strings.TrimSpace(out.String()), "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func TestViewShowsTimes(t *testing.T) {
	var out bytes.Buffer
	if err := New(exampleRun(t), &out, Options{Prefix: "${time} "}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := at(1).Format("15:04:05.000") + " a\n" + at(2).Format("15:04:05.000") + " b\n"; !strings.HasPrefix(
		out.String(),
		want,
	) {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestViewWithoutTimeline(t *testing.T) {
	run := t.TempDir()
	for rank, text := range map[string]string{"0": "a\nb\n", "1": "c\nd\n", "10": "e\n"} {
		write(t, text, run, "attempt_0", rank, "stdout.log")
	}
	var out bytes.Buffer
	var notes []string
	opts := Options{Prefix: "${time} ${rank} ", Note: func(text string) { notes = append(notes, text) }}
	if err := New(run, &out, opts).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := "--:--:--.--- 0 a\n--:--:--.--- 0 b\n--:--:--.--- 1 c\n--:--:--.--- 1 d\n--:--:--.--- 10 e\n"
	if diff := cmp.Diff(want, out.String()); diff != "" || len(notes) != 1 ||
		!strings.Contains(notes[0], "attempt_0 has no timeline") {
		t.Errorf("notes %q, output (-want +got):\n%s", notes, diff)
	}
}

func TestViewOfNothing(t *testing.T) {
	run := exampleRun(t)
	empty := filepath.Join(t.TempDir(), "run")
	write(t, "", empty, "attempt_0", "0", "error.json")
	for _, tt := range []struct {
		run, want string
		opts      Options
	}{
		{empty, "only to the console", Options{}},
		{run, "rank, stream or attempt", Options{LocalRanks: ranks(t, "5")}},
		{run, "rank, stream or attempt", Options{Ranks: ranks(t, "g0")}},
		{run, "rank, stream or attempt", Options{Attempt: "7"}},
	} {
		err := New(tt.run, io.Discard, tt.opts).Run(t.Context())
		if !errors.Is(err, ErrNothing) || !strings.Contains(err.Error(), tt.run) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: want one that has %q", err, tt.want)
		}
	}
}

// follower follows a run and returns its lines one by one.
type follower struct {
	lines chan string
	done  chan error
	end   chan struct{}
}

func follow(t *testing.T, ctx context.Context, run string, opts Options) *follower {
	t.Helper()
	f := &follower{lines: make(chan string, 100), done: make(chan error, 1), end: make(chan struct{})}
	opts.Follow, opts.Ended = true, f.end
	read, write := io.Pipe()
	go func() {
		f.done <- New(run, write, opts).Run(ctx)
		write.Close()
	}()
	go func() {
		defer close(f.lines)
		data := make([]byte, 1000)
		for {
			n, err := read.Read(data)
			if err != nil {
				return
			}
			for line := range strings.Lines(string(data[:n])) {
				f.lines <- strings.TrimSuffix(line, "\n")
			}
		}
	}()
	return f
}

func (f *follower) expect(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		if got, open := <-f.lines; got != w || !open {
			t.Fatalf("line %q (%v), want %q", got, open, w)
		}
	}
}

// A view that follows shows new output of existing files, new files, rotated files and new attempts.
func TestViewFollows(t *testing.T) {
	run := exampleRun(t)
	f := follow(t, t.Context(), run, Options{Tail: 2})
	f.expect(t, "f", "g")
	write(t, "h\n", run, "attempt_1", "0", "stdout.log")
	f.expect(t, "h")
	write(t, "i\n", run, "attempt_1", "1", "stderr.log") // a new folder
	f.expect(t, "i")
	log := filepath.Join(run, "attempt_1", "0", "stdout.log")
	write(t, "j\n", log)
	if err := os.Rename(log, log+".1"); err != nil {
		t.Fatal(err)
	}
	write(t, "k\nunfinished", log)
	f.expect(t, "j", "k")
	write(t, "l\nm", run, "attempt_2", "0", "stdout.log")
	f.expect(t, "unfinished", "l")
	close(f.end)
	f.expect(t, "m")
	if err := <-f.done; err != nil {
		t.Error(err)
	}
}

// A run that has written nothing yet can be followed until the user ends it.
func TestViewFollowIsInterrupted(t *testing.T) {
	run := t.TempDir()
	ctx, interrupt := context.WithCancel(t.Context())
	f := follow(t, ctx, run, Options{})
	write(t, "first\n", run, "attempt_0", "0", "stdout.log")
	f.expect(t, "first")
	interrupt()
	if err := <-f.done; err != nil {
		t.Error(err)
	}
	ctx, interrupt = context.WithCancel(t.Context())
	interrupt()
	if err := <-follow(t, ctx, t.TempDir(), Options{}).done; err != nil {
		t.Error("nothing was there yet:", err)
	}
}

func TestViewReaderGone(t *testing.T) {
	read, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	read.Close()
	if err := New(exampleRun(t), out, Options{}).Run(t.Context()); err != nil {
		t.Error(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	if err := New(exampleRun(t), full, Options{}).Run(t.Context()); err == nil {
		t.Error("a full disk went unnoticed")
	}
}

// TestOnlyLogFiles checks that a link or a FIFO in place of a log is refused: the link is not followed, and opening the
// FIFO does not block.
func TestOnlyLogFiles(t *testing.T) {
	for _, name := range []string{"timeline", "0/stdout.log", "0/stdout.log.1"} {
		for what, place := range map[string]func(path string) error{
			"is a symbolic link": func(path string) error { return os.Symlink("/etc/passwd", path) },
			"is not a regular":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		} {
			run := exampleRun(t)
			path := filepath.Join(run, "attempt_0", name)
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			if err := place(path); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err := New(run, &out, Options{}).Run(t.Context())
			if !errors.Is(err, ErrNoLogFile) || !strings.Contains(err.Error(), path+" "+what) ||
				strings.Contains(out.String(), "root") {
				t.Errorf("%s %s: got %v and %q", name, what, err, out.String())
			}
		}
	}
}

// TestTerminalOption checks that output to a terminal is harmless, including the prefix and held lines, and that output
// to a pipe is unchanged.
func TestTerminalOption(t *testing.T) {
	run := filepath.Join(t.TempDir(), "job_abcdefgh")
	head := workerlog.TimelineHead{RunID: "job", Workers: 1, Role: "r\x1b[2J"}.String() + "\n"
	write(t, head+"1000000 0 1 0\n", run, "attempt_0", "timeline")
	write(t, "\x1b[31mred\x1b[2J\r\n", run, "attempt_0", "0", "stdout.log")
	for _, tail := range []int{0, 1} {
		for terminal, want := range map[bool]string{
			false: "r\x1b[2J:\x1b[31mred\x1b[2J\n",
			true:  "r^[[2J:\x1b[31mred^[[2J\x1b[0m\n",
		} {
			var out bytes.Buffer
			if err := New(run, &out, Options{Prefix: "${role_name}:", Terminal: terminal, Tail: tail}).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, out.String()); diff != "" {
				t.Errorf("terminal %v, tail %d (-want +got):\n%s", terminal, tail, diff)
			}
		}
	}
}

// Following a run whose output went only to the console says so at once, not only when the run ends.
func TestFollowWithoutLog(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run := filepath.Join(t.TempDir(), "job_abcdefgh")
	if err := os.MkdirAll(filepath.Join(run, "attempt_0", "0"), 0o700); err != nil {
		t.Fatal(err)
	}
	var notes []string
	ended := make(chan struct{})
	err := New(run, io.Discard, Options{Follow: true, Ended: ended, Note: func(text string) {
		notes = append(notes, text)
		close(ended)
	}}).Run(ctx)
	want := []string{"no log so far in " + run + ": its workers' output went only to the console; keep it with " +
		"--redirects or --tee; waiting for the run's end"}
	if diff := cmp.Diff(want, notes); diff != "" || !errors.Is(err, ErrNothing) {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
