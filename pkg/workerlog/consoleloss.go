package workerlog

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"
)

// loss counts the bytes that one side of the console could not write for lack of space.
type loss struct {
	bytes      atomic.Int64          // in all
	err        atomic.Pointer[error] // the last reason
	unreported int64                 // bytes lost since the last notice; guarded by sink.busy
}

func (l *loss) add(n int, err error) {
	l.bytes.Add(int64(n))
	l.unreported += int64(n)
	err = cause(err)
	l.err.Store(&err)
}

// Lost says how much one side of the console could not write for lack of space.
type Lost struct {
	// Stream is "stdout" or "stderr", or "stdout" if both are the same file.
	Stream string
	// Bytes is the number of lost bytes.
	Bytes int64
	// Err is the error of the last failed write.
	Err error
}

// isNoSpace reports whether a write may succeed later, when space has been freed.
func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// failed records a write that failed with n bytes left.
func (s *sink) failed(err error, n int) {
	if isNoSpace(err) {
		s.loss.add(n, err)
		return
	}
	err = fmt.Errorf("write to the console's %s: %w", s.name, err)
	s.err.Store(&err)
}

// reportLoss writes, on a line of its own, how much was lost before it.
func (s *sink) reportLoss(ctx context.Context) error {
	notice := fmt.Sprintf("elasticrun: %d bytes of output are missing here: %v\n", s.loss.unreported, *s.loss.err.Load())
	if s.owner != nil {
		notice = "\n" + notice
	}
	n, err := s.write(ctx, []byte(notice))
	s.endWrite(nil, []byte(notice)[:n])
	if err == nil {
		s.loss.unreported = 0
	}
	return err
}

// cause returns the system's own error, without the operation and the file's name.
func cause(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// Lost returns how much each side of the console has lost so far for lack of space. It does not wait for a write.
func (c *Console) Lost() []Lost {
	var all []Lost
	for _, s := range c.sides() {
		if err := s.loss.err.Load(); err != nil {
			all = append(all, Lost{Stream: s.name, Bytes: s.loss.bytes.Load(), Err: *err})
		}
	}
	return all
}

// ReportLost writes a notice of what was lost to the side that lost it, or else to the other side. It retries until
// timeout. An error means that neither side has space. A reader that has gone is no error.
func (c *Console) ReportLost(timeout time.Duration) error {
	var errs []error
	for _, s := range c.sides() {
		if err := s.finish(s.writer(), "", timeout); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 || len(errs) == len(c.sides()) {
		return errors.Join(errs...)
	}
	other := c.stdout
	if other.hasUnreported() {
		other = c.stderr
	}
	return other.finish(other.writer(), fmt.Sprintf("elasticrun: %v\n", errs[0]), 0)
}

// Finish writes the launcher's last text to stderr. If there is no space it retries until timeout, and then writes
// the text to stdout. Nothing may be written after it.
func (c *Console) Finish(text string, timeout time.Duration) {
	if err := c.stderr.finish(c.launcher, text, timeout); err != nil && c.stdout != c.stderr {
		_ = c.stdout.finish(c.stdout.writer(), text, 0)
	}
}

// retryInterval is the pause between two attempts to write when there is no space. No event announces free space.
const retryInterval = 50 * time.Millisecond

// finish writes text, after a notice of what was lost before it. It retries until timeout while there is no space.
func (s *sink) finish(w *consoleWriter, text string, timeout time.Duration) error {
	s.busy <- struct{}{}
	defer func() { <-s.busy }()
	ctx, rest := context.Background(), []byte(text)
	for until := time.Now().Add(timeout); s.lost() == nil; <-time.After(retryInterval) {
		var err error
		if s.loss.unreported > 0 {
			err = s.reportLoss(ctx)
		}
		if err == nil && len(rest) > 0 {
			if len(rest) == len(text) && s.owner != nil && !s.cr {
				rest = append([]byte{'\n'}, rest...)
			}
			var n int
			n, err = s.write(ctx, rest)
			s.endWrite(w, rest[:n])
			rest = rest[n:]
		}
		switch {
		case err == nil:
			return nil
		case !isNoSpace(err):
			s.failed(err, len(rest))
		case time.Now().After(until):
			s.failed(err, len(rest))
			return fmt.Errorf("%d bytes of %s were lost: %w", s.loss.bytes.Load(), s.name, cause(err))
		}
	}
	return nil
}

// hasUnreported reports whether anything was lost without a notice.
func (s *sink) hasUnreported() bool {
	s.busy <- struct{}{}
	defer func() { <-s.busy }()
	return s.loss.unreported > 0
}

// sides returns the files of the console, each once.
func (c *Console) sides() []*sink {
	if c.stdout == c.stderr {
		return []*sink{c.stdout}
	}
	return []*sink{c.stdout, c.stderr}
}
