package workerlog

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"
)

// loss counts what one side of the console could not write for want of room.
type loss struct {
	bytes  atomic.Int64          // in all
	err    atomic.Pointer[error] // the last reason
	untold int64                 // bytes since the last notice that was written; guarded by the sink's busy
}

func (l *loss) add(n int, err error) {
	l.bytes.Add(int64(n))
	l.untold += int64(n)
	err = cause(err)
	l.err.Store(&err)
}

// Lost says what one side of the console could not write for want of room.
type Lost struct {
	// Stream is "stdout" or "stderr"; "stdout" where both are the same file.
	Stream string
	// Bytes is how many.
	Bytes int64
	// Err is the last reason.
	Err error
}

// lacksRoom reports whether a write may succeed later, when somebody has made room.
func lacksRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// failed notes a write that failed with n bytes left.
func (s *sink) failed(err error, n int) {
	if lacksRoom(err) {
		s.loss.add(n, err)
		return
	}
	err = fmt.Errorf("write to the console's %s: %w", s.name, err)
	s.err.Store(&err)
}

// tellLoss writes, on a line of its own, how much was lost before it.
func (s *sink) tellLoss(ctx context.Context) error {
	notice := fmt.Sprintf("elasticrun: %d bytes of output are missing here: %v\n", s.loss.untold, *s.loss.err.Load())
	if s.owner != nil {
		notice = "\n" + notice
	}
	n, err := s.write(ctx, []byte(notice))
	s.leave(nil, []byte(notice)[:n])
	if err == nil {
		s.loss.untold = 0
	}
	return err
}

// cause is the system's own error, without the operation and the file's name.
func cause(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// Lost returns what each side of the console has lost so far for want of room. It does not wait for a write.
func (c *Console) Lost() []Lost {
	var all []Lost
	for _, s := range c.sides() {
		if err := s.loss.err.Load(); err != nil {
			all = append(all, Lost{Stream: s.name, Bytes: s.loss.bytes.Load(), Err: *err})
		}
	}
	return all
}

// ReportLost makes sure that whoever reads the console is told of what was lost: where it was lost, or else on the other
// side. For a while it tries again; an error says that neither side has room. A reader that has gone away is none.
func (c *Console) ReportLost(patience time.Duration) error {
	var errs []error
	for _, s := range c.sides() {
		if err := s.finish(s.writer(), "", patience); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 || len(errs) == len(c.sides()) {
		return errors.Join(errs...)
	}
	other := c.stdout
	if other.untold() {
		other = c.stderr
	}
	return other.finish(other.writer(), fmt.Sprintf("elasticrun: %v\n", errs[0]), 0)
}

// Finish writes the launcher's last words to stderr. Where there is no room for them it tries again for a while, and
// then writes them to stdout. Nothing is to be written after it.
func (c *Console) Finish(text string, patience time.Duration) {
	if err := c.stderr.finish(c.launcher, text, patience); err != nil && c.stdout != c.stderr {
		_ = c.stdout.finish(c.stdout.writer(), text, 0)
	}
}

// retryRoom is the pause between two tries to write where there was no room: nothing tells when there is.
const retryRoom = 50 * time.Millisecond

// finish writes text, after a notice of what was lost before it, and tries again for that long while there is no room.
func (s *sink) finish(w *consoleWriter, text string, patience time.Duration) error {
	s.busy <- struct{}{}
	defer func() { <-s.busy }()
	ctx, rest := context.Background(), []byte(text)
	for until := time.Now().Add(patience); s.lost() == nil; <-time.After(retryRoom) {
		var err error
		if s.loss.untold > 0 {
			err = s.tellLoss(ctx)
		}
		if err == nil && len(rest) > 0 {
			if len(rest) == len(text) && s.owner != nil && !s.cr {
				rest = append([]byte{'\n'}, rest...)
			}
			var n int
			n, err = s.write(ctx, rest)
			s.leave(w, rest[:n])
			rest = rest[n:]
		}
		switch {
		case err == nil:
			return nil
		case !lacksRoom(err):
			s.failed(err, len(rest))
		case time.Now().After(until):
			s.failed(err, len(rest))
			return fmt.Errorf("%d bytes of %s were lost: %w", s.loss.bytes.Load(), s.name, cause(err))
		}
	}
	return nil
}

// untold reports whether something was lost of which no notice was written.
func (s *sink) untold() bool {
	s.busy <- struct{}{}
	defer func() { <-s.busy }()
	return s.loss.untold > 0
}

// sides are the files of the console, each once.
func (c *Console) sides() []*sink {
	if c.stdout == c.stderr {
		return []*sink{c.stdout}
	}
	return []*sink{c.stdout, c.stderr}
}
