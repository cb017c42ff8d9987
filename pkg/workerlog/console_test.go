package workerlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
)

// text is a batch of text; more says that it continues a line.
func text(prefix, text string, more bool) batch {
	return batch{buf: []byte("\n" + prefix + text), prefix: len(prefix), continues: more}
}

func TestConsoleLines(t *testing.T) {
	type step struct {
		from string
		b    batch
	}
	for _, tt := range []struct {
		name  string
		steps []step
		want  string
	}{
		{"whole lines", []step{{"a", text("A:", "1\n", false)}, {"b", text("B:", "2\n", false)}}, "A:1\nB:2\n"},
		{"own continuation", []step{{"a", text("A:", "1", false)}, {"a", text("A:", "2\n", true)}}, "A:12\n"},
		{"broken off", []step{{"a", text("A:", "1", false)}, {"b", text("B:", "x\n", false)}, {"a", text("A:", "2\n", true)}}, "A:1\nB:x\nA:2\n"},
		{"both broken off", []step{
			{"a", text("A:", "1", false)}, {"b", text("B:", "x", false)}, {"a", text("A:", "2", true)}, {"b", text("B:", "y\n", true)},
		}, "A:1\nB:x\nA:2\nB:y\n"},
		{"bar is overwritten", []step{{"a", text("A:", "1%\r", false)}, {"b", text("B:", "x\n", false)}, {"a", text("A:", "2%\r", false)}}, "A:1%\rB:x\nA:2%\r"},
		{"bar redraws itself", []step{{"a", text("A:", "1%\r", false)}, {"a", text("A:", "2%\r", false)}}, "A:1%\rA:2%\r"},
		{"no prefix", []step{{"a", text("", "1", false)}, {"b", text("", "x", false)}, {"a", text("", "2\n", true)}}, "1\nx\n2\n"},
		{"launcher", []step{{"a", text("A:", "1", false)}, {"launcher", text("", "log\n", false)}, {"a", text("A:", "2\n", true)}}, "A:1\nlog\nA:2\n"},
		{"launcher in parts", []step{{"a", text("A:", "1\n", false)}, {"launcher", text("", "lo", false)}, {"launcher", text("", "g\n", false)}}, "A:1\nlog\n"},
		{"empty batch", []step{{"a", text("A:", "1", false)}, {"b", batch{}}, {"a", text("A:", "2\n", true)}}, "A:12\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := newMemoryConsole(t)
			writers := map[string]*consoleWriter{"a": out.writer(), "b": out.writer(), "launcher": out.writer()}
			for _, s := range tt.steps {
				put(t, writers[s.from], s.b)
			}
			if diff := cmp.Diff(tt.want, out.text(t)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Two descriptors of one open file are one console; two files are two.
func TestConsoleSharesOneFile(t *testing.T) {
	one := newFile(t)
	dup, err := syscall.Dup(int(one.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	same := os.NewFile(uintptr(dup), "dup")
	defer same.Close()
	c := NewConsole(one, same)
	put(t, c.writer(Stdout), text("A:", "1", false))
	fmt.Fprintf(c.Stderr(), "log\n")
	put(t, c.writer(Stderr), text("E:", "2\n", false))
	if diff := cmp.Diff("A:1\nlog\nE:2\n", readFile(t, one.Name())); diff != "" {
		t.Errorf("one file (-want +got):\n%s", diff)
	}

	two, three := newFile(t), newFile(t)
	c = NewConsole(two, three)
	put(t, c.writer(Stdout), text("A:", "1", false))
	fmt.Fprintf(c.Stderr(), "log\n")
	put(t, c.writer(Stderr), text("E:", "2\n", false))
	if diff := cmp.Diff([]string{"A:1", "log\nE:2\n"}, []string{readFile(t, two.Name()), readFile(t, three.Name())}); diff != "" {
		t.Errorf("two files (-want +got):\n%s", diff)
	}
	if err := c.Err(); err != nil {
		t.Error(err)
	}
}

// A console whose reader has gone accepts every write, and Err says why it shows nothing.
func TestConsoleReaderGone(t *testing.T) {
	read, write := newPipe(t)
	read.Close()
	c := NewConsole(write, write)
	put(t, c.writer(Stdout), text("A:", "1\n", false))
	first := c.Err()
	for range 3 {
		put(t, c.writer(Stdout), text("A:", "1\n", false))
		if n, err := c.Stderr().Write([]byte("log\n")); n != 4 || err != nil {
			t.Errorf("launcher's write = %d, %v", n, err)
		}
	}
	if !errors.Is(c.Err(), first) {
		t.Error("it was written to again")
	}
	if err := c.Err(); !errors.Is(err, syscall.EPIPE) || strings.Contains(err.Error(), "\n") {
		t.Errorf("Err() = %v, want EPIPE once", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A stalled console (a pipe or a terminal) does not block a writer whose context ends, whether it writes or waits for
// another writer.
func TestConsoleStalled(t *testing.T) {
	pipeRead, pipeWrite := newPipe(t)
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	defer tty.Close()
	for name, ends := range map[string][2]*os.File{"pipe": {pipeRead, pipeWrite}, "terminal": {terminal, tty}} {
		t.Run(name, func(t *testing.T) {
			c := NewConsole(ends[1], ends[1])
			defer c.Close()
			ctx, cancel := context.WithCancel(t.Context())
			results := make(chan error)
			for _, letter := range []string{"a", "b"} {
				go func() {
					results <- c.writer(Stdout).put(ctx, text("", strings.Repeat(letter, 1<<20)+"\n", false))
				}()
			}
			buf := make([]byte, 100)
			if _, err := ends[0].Read(buf); err != nil { // one of them writes now
				t.Fatal(err)
			}
			cancel()
			for range 2 {
				if err := <-results; err == nil {
					t.Error("put returned no error")
				}
			}
			if err := c.Err(); err != nil {
				t.Errorf("the console is lost: %v", err)
			}

			// Once it is read again, others continue on a new line.
			go func() { results <- c.writer(Stdout).put(t.Context(), text("", "next\n", false)) }()
			var got strings.Builder
			for !strings.Contains(got.String(), "next") {
				n, err := ends[0].Read(buf)
				if err != nil {
					t.Fatal(err)
				}
				got.Write(buf[:n])
			}
			if err := <-results; err != nil {
				t.Error(err)
			}
			if !strings.Contains(got.String(), "\nnext") {
				t.Errorf("no new line before what follows: %q", got.String()[got.Len()-20:])
			}
		})
	}
}

// The flags of the console's open files are shared with the shell, so they must not change.
func TestConsoleLeavesFlagsAlone(t *testing.T) {
	read, write := newPipe(t)
	defer read.Close()
	if err := syscall.SetNonblock(int(write.Fd()), false); err != nil {
		t.Fatal(err)
	}
	c := NewConsole(write, write)
	defer c.Close()
	if nonblocking(t, write) {
		t.Error("the console's file became non-blocking")
	}
}

func newFile(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// newPipe returns a pipe whose reads end after a while, so that a test fails
// rather than hangs.
func newPipe(t testing.TB) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { read.Close(); write.Close() })
	if err := read.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return read, write
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func nonblocking(t testing.TB, f *os.File) bool {
	t.Helper()
	conn, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var flags uintptr
	err = conn.Control(func(fd uintptr) {
		flags, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	return flags&syscall.O_NONBLOCK != 0
}
