package workerlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// pipeSize is the requested size, in bytes, of the pipes between workers, launcher and the console's reader. A larger
// size gains nothing and uses up the user's quota, beyond which the kernel makes all new pipes of the user tiny.
const pipeSize = 256 << 10

// giveUpStep limits each step by which Wait ends the copying after its context has ended.
const giveUpStep = 50 * time.Millisecond

// Stream is one output stream of one worker, from the worker to every destination of its [Output]. Open it, give its
// ChildFile to the worker, then call Start, which begins the copying. The copying ends at end of file, once every
// process has closed the worker's end; Wait waits for that. Discard releases a stream that was never started.
type Stream struct {
	child *os.File // the worker's end
	pipe  *os.File // the other end; nil: the worker writes the file itself
	path  string   // of the file that the worker writes itself
	out   copier

	cancel context.CancelFunc // gives up the console
	done   chan struct{}      // closed when the copying has ended and err is set
	err    error
}

// ErrLogFile says that a log file could not be opened, so that no worker was started.
var ErrLogFile = errors.New("open log file")

// OpenStream opens the files of out, and a pipe if bytes must pass through the launcher. std is the stream, Stdout or
// Stderr. The stream appears on console if out.Console is set and console is not nil.
func OpenStream(out Output, console *Console, std StreamSet) (*Stream, error) {
	s := &Stream{done: make(chan struct{})}
	file, err := openLogFile(out.File, out.Rotation, out.Warn)
	if err != nil {
		return nil, fmt.Errorf("%w for %s: %w", ErrLogFile, std, err)
	}
	if out.OwnFile() != "" {
		s.child, s.path = file.file, out.File
		return s, nil
	}
	s.out = copier{name: std.String(), file: file, scan: out.Scan, warn: out.Warn}
	if out.isFiltered() {
		if s.out.filter, err = openFilter(out); err != nil {
			err = fmt.Errorf("%w: %w", ErrLogFile, err)
		}
	}
	if err == nil {
		s.pipe, s.child, err = openPipe()
	}
	if err != nil {
		s.out.close()
		return nil, fmt.Errorf("open %s of a worker: %w", std, err)
	}
	if out.Console && console != nil {
		s.out.console = console.writer(std)
		s.out.lines = &lineSplitter{prefix: newStampedPrefix(out.Prefix)}
	}
	return s, nil
}

// WriteTimeline makes t record when the stream's file is written, if it has one. Call it before Start.
func (s *Stream) WriteTimeline(t *Timeline, localRank int, std StreamSet) {
	switch {
	case s.pipe == nil:
		t.follow(s.path, localRank, std)
	case s.out.file != nil && t != nil:
		s.out.timeline = t
		s.out.pace = pacer{localRank: localRank, std: std}
		s.out.file.onRotate = func(piece int, total int64) { t.put(s.out.pace.ended(piece, total), true) }
	}
}

// ChildFile returns the file that the worker gets as its file descriptor 1 or 2. It is valid until Start or Discard.
func (s *Stream) ChildFile() *os.File { return s.child }

// Start closes the launcher's copy of the worker's end and begins to copy. Call it once, after the worker was
// started.
func (s *Stream) Start() {
	_ = s.child.Close()
	if s.pipe == nil {
		close(s.done)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		defer close(s.done)
		defer cancel()
		s.err = s.out.copy(ctx, s.pipe)
	}()
}

// SetIdleTimeout says that every process that should write to the started stream has ended. If another process then
// keeps the stream open and silent for d, the stream ends, and Wait returns an error.
func (s *Stream) SetIdleTimeout(d time.Duration) {
	if s.pipe != nil {
		s.out.setIdleTimeout(s.pipe, d)
	}
}

// Wait returns when every byte of the started stream has been written. The error says what could not be written to a
// file. If ctx ends first, the content of the pipe still goes to the file, but within 0.2 s the console and the pipe
// are given up, and the error says what is lost.
func (s *Stream) Wait(ctx context.Context) error {
	if s.Ends(ctx) {
		return s.err
	}
	for _, giveUp := range []func(){s.cancel, func() { _ = s.pipe.Close() }} {
		giveUp()
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpStep)
		ended := s.Ends(bound)
		cancel()
		if ended {
			return s.err
		}
	}
	return fmt.Errorf("give up %s: a write to its file or to the console hangs", s.out.name)
}

// Ends waits for the end of the started stream's copying, or for the end of ctx. It reports whether the copying has
// ended.
func (s *Stream) Ends(ctx context.Context) bool {
	select {
	case <-s.done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// Tail returns the last lines of the stream, at most 20 lines and 8 KiB. It may be called at any time.
func (s *Stream) Tail() []string {
	lines, _ := s.tail()
	return lines
}

func (s *Stream) tail() (lines []string, at time.Time) {
	if s.pipe == nil {
		return fileTail(s.path)
	}
	return s.out.tail.lines()
}

// LastLine returns the last line of the stream that is not blank, and when the stream was last written. The line is
// empty if there is none. It may be called at any time.
func (s *Stream) LastLine() (line string, at time.Time) {
	lines, at := s.tail()
	for _, line := range slices.Backward(lines) {
		if strings.TrimSpace(line) != "" {
			return line, at
		}
	}
	return "", time.Time{}
}

// Discard releases a stream that was never started.
func (s *Stream) Discard() {
	_ = s.child.Close()
	if s.pipe != nil {
		_ = s.pipe.Close()
		s.out.close()
	}
}

// openPipe makes a pipe whose read end supports deadlines. Its write end blocks, as a worker expects.
func openPipe() (read, write *os.File, err error) {
	if read, write, err = os.Pipe(); err != nil {
		return nil, nil, err
	}
	growPipe(read, pipeSize)
	write.Fd() // makes it blocking again
	return read, write, nil
}
