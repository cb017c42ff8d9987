package workerlog

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// Console writes the streams of all workers, and the launcher's own lines, to the launcher's stdout and stderr. Lines
// never mix: if a stream has left a line unfinished and another stream writes, a newline is written first, and the
// first stream starts its next piece with its prefix again. A line that ends in "\r", as of a progress bar, is
// overwritten instead. If stdout and stderr are the same file (a terminal, 2>&1), this holds across both.
//
// A slow reader slows the workers down; nothing is dropped. A write may fail for lack of space: a full disk, a quota,
// a limit on the size of files. Then its bytes are lost and counted, and the next write tries again; see
// [Console.Lost]. If a write fails because the reader has gone, the console gives up that side, the job continues and
// Err returns the error. For this a write to a closed pipe must return EPIPE, so the program must receive SIGPIPE
// with signal.Notify. With signal.Ignore the workers would inherit the ignored signal.
//
// All methods may be called from any goroutine.
type Console struct {
	stdout, stderr *sink
	launcher       *consoleWriter
}

// NewConsole makes the console of two files, usually os.Stdout and os.Stderr. The caller still owns them; Close
// releases what the console opened itself.
func NewConsole(stdout, stderr *os.File) *Console {
	c := &Console{stdout: newSink("stdout", stdout)}
	c.stderr = c.stdout
	if !sameFile(stdout, stderr) {
		c.stderr = newSink("stderr", stderr)
	}
	c.launcher = c.stderr.writer()
	return c
}

// Stderr returns the writer for the launcher's own log and reports, on stderr. Every write should be whole lines:
// they never land inside a worker's line. Write never returns an error; see [Console.Err].
func (c *Console) Stderr() io.Writer { return c.launcher }

// Err returns why the console, or one side of it, is no longer written to, or nil.
func (c *Console) Err() error {
	if c.stdout == c.stderr {
		return c.stdout.lost()
	}
	return errors.Join(c.stdout.lost(), c.stderr.lost())
}

// Close releases the console's resources. Call it after the last write.
func (c *Console) Close() error {
	err := c.stdout.close()
	if c.stdout != c.stderr {
		err = errors.Join(err, c.stderr.close())
	}
	return err
}

// writer returns a new writer for one stream.
func (c *Console) writer(std StreamSet) *consoleWriter {
	if std == Stderr {
		return c.stderr.writer()
	}
	return c.stdout.writer()
}

// consoleWriter is one stream's access to a sink. Its address is its identity.
type consoleWriter struct{ sink *sink }

func (w *consoleWriter) put(ctx context.Context, b batch) error { return w.sink.put(ctx, w, b) }

// Write implements io.Writer for the launcher's own lines.
func (w *consoleWriter) Write(p []byte) (int, error) {
	buf := make([]byte, 0, len(p)+1)
	_ = w.put(context.Background(), batch{buf: append(append(buf, '\n'), p...)})
	return len(p), nil
}

// sink is one open file of the console, and the state of its current line.
type sink struct {
	name   string
	file   *os.File
	opened bool          // the console opened file itself
	busy   chan struct{} // a lock: holds a token during a write. The wait for it can end with a context
	err    atomic.Pointer[error]

	// Guarded by busy.
	owner *consoleWriter // the writer that left a line unfinished; nil: the next byte starts a line
	cr    bool           // that line ended in "\r"
	loss  loss
}

func newSink(name string, file *os.File) *sink {
	s := &sink{name: name, file: file, busy: make(chan struct{}, 1)}
	if own, err := reopenForDeadlines(file); err == nil {
		s.file, s.opened = own, true
		growPipe(own, pipeSize)
	}
	return s
}

func (s *sink) writer() *consoleWriter { return &consoleWriter{sink: s} }

// put writes a batch for w. It waits until the file accepts it. If ctx ends first it returns the context's error, and
// a part of the batch may have been written. A file that cannot be written to is no error here.
func (s *sink) put(ctx context.Context, w *consoleWriter, b batch) error {
	if len(b.buf) == 0 {
		return nil
	}
	if ctx.Err() != nil { // the select might still take the lock
		return ctx.Err()
	}
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.lost() != nil {
		return nil
	}
	skip := 1
	switch {
	case s.owner == w && b.continues:
		skip += b.prefix
	case s.owner != nil && s.owner != w && !s.cr:
		skip = 0
	}
	if s.loss.unreported > 0 {
		if err := s.reportLoss(ctx); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			s.failed(err, len(b.buf)-1)
			return nil
		}
		skip = 1
	}
	n, err := s.write(ctx, b.buf[skip:])
	s.endWrite(w, b.buf[skip:skip+n])
	if err == nil || ctx.Err() != nil {
		return err
	}
	s.failed(err, len(b.buf)-skip-n)
	return nil
}

// endWrite records the state of the line after w has written p.
func (s *sink) endWrite(w *consoleWriter, p []byte) {
	if len(p) == 0 {
		return
	}
	last := p[len(p)-1]
	s.owner, s.cr = w, last == '\r'
	if last == '\n' {
		s.owner = nil
	}
}

// write is file.Write. It ends with ctx if the file supports deadlines.
func (s *sink) write(ctx context.Context, p []byte) (int, error) {
	if ctx.Done() == nil {
		return s.file.Write(p)
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = s.file.SetWriteDeadline(time.Unix(1, 0))
		close(ended)
	})
	n, err := s.file.Write(p)
	if !stop() {
		<-ended
		_ = s.file.SetWriteDeadline(time.Time{})
	}
	return n, err
}

func (s *sink) lost() error {
	if err := s.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *sink) close() error {
	if !s.opened {
		return nil
	}
	return s.file.Close()
}

func sameFile(a, b *os.File) bool {
	infoA, errA := a.Stat()
	infoB, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}
