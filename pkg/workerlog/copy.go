package workerlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// readSize is how much is read, and shown, at once: with it the data of several
	// streams stays in a core's cache on its way.
	readSize = 128 << 10
	// fileSize is how much is written to a file at once. Larger writes make the page
	// cache look for larger pieces of memory, which took up to twice the CPU time.
	fileSize = 8 << 10
	// quiet is how long a stream pauses before its unfinished line is shown.
	quiet = 50 * time.Millisecond
	// After burst bytes without such a pause the writer may be held up by the full
	// pipe in the middle of a line, and needs CPU time first to go on: the pause has
	// to be quietAfterBurst.
	burst           = 64 << 10
	quietAfterBurst = 250 * time.Millisecond
)

// copier moves the bytes of one stream, in one goroutine; only tail is shared.
type copier struct {
	name    string
	file    *logFile       // nil: none
	filter  *lineFilter    // nil: none
	console *consoleWriter // nil: not shown
	lines   *lineSplitter  // with console
	tail    tail
	scan    Scanner // nil: nobody
	warn    func(error)

	timeline *Timeline // of what file gets; nil: none
	pace     pacer     // with timeline

	mu       sync.Mutex    // orders read deadlines set by the two goroutines
	patience time.Duration // guarded by mu: how long a silent pipe is still read; 0: for ever
	since    time.Time     // guarded by mu: when the last bytes were passed on

	armed  bool  // the pipe has a read deadline
	run    int   // bytes since the unfinished line was last seen whole
	failed error // the first failed write to a file
	unseen int64 // bytes that the console did not get
}

// copy reads until end of file, or until pipe is closed. When ctx ends the
// console gets nothing more.
func (c *copier) copy(ctx context.Context, pipe *os.File) error {
	buf := make([]byte, readSize)
	var readErr error
	for readErr == nil {
		var n int
		n, readErr = pipe.Read(buf)
		c.take(ctx, buf[:n])
		if errors.Is(readErr, os.ErrDeadlineExceeded) && !c.outOfPatience() {
			readErr = nil
			if c.console != nil {
				c.show(ctx, c.lines.flush())
			}
		}
		c.arm(pipe, n)
	}
	if c.console != nil {
		c.show(ctx, c.lines.flush())
	}
	c.close()
	_ = pipe.Close()

	var lost []error
	if !errors.Is(readErr, io.EOF) {
		lost = append(lost, fmt.Errorf("give up %s: a process still has it open (%w)", c.name, readErr))
	}
	if c.unseen > 0 {
		lost = append(lost, fmt.Errorf("give up %s: its last %d bytes did not reach the console", c.name, c.unseen))
	}
	return errors.Join(append(lost, c.failed)...)
}

// take passes one chunk on. A file that fails is tried again with the next chunk:
// a full disk may be cleaned up.
func (c *copier) take(ctx context.Context, p []byte) {
	if len(p) == 0 {
		return
	}
	c.tail.add(p)
	if c.scan != nil {
		c.scan.Scan(p, time.Now())
	}
	if c.file != nil {
		if c.timeline != nil {
			c.timeline.put(c.pace.writes(time.Now(), c.file.total))
		}
		for part := range slices.Chunk(p, fileSize) {
			_, err := c.file.Write(part)
			c.note(err)
		}
	}
	if c.filter != nil {
		c.note(c.filter.feed(p))
	}
	if c.console == nil {
		return
	}
	for len(p) > 0 {
		out, taken := c.lines.feed(p)
		c.show(ctx, out)
		p = p[taken:]
	}
}

func (c *copier) show(ctx context.Context, b batch) {
	if err := c.console.put(ctx, b); err != nil {
		c.unseen += int64(len(b.buf))
	}
}

// hurry says that nobody is left who should write: a pipe that stays open and
// silent for d is held by a process that has nothing to do with the job.
func (c *copier) hurry(pipe *os.File, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.patience = d
	_ = pipe.SetReadDeadline(time.Now().Add(d))
}

func (c *copier) outOfPatience() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.patience > 0 && time.Since(c.since) >= c.patience
}

// arm sets the time at which the unfinished line will be shown, if there is one
// after a read of n bytes, or else the time at which patience ends.
func (c *copier) arm(pipe *os.File, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 {
		c.since = time.Now()
	}
	switch {
	case c.console != nil && len(c.lines.pending) > 0:
		c.run += n
		pause := quiet
		if c.run >= burst {
			pause = quietAfterBurst
		}
		c.armed = pipe.SetReadDeadline(time.Now().Add(pause)) == nil
	case c.patience > 0:
		_ = pipe.SetReadDeadline(time.Now().Add(c.patience))
	case c.armed:
		c.armed = false
		_ = pipe.SetReadDeadline(time.Time{})
		fallthrough
	default:
		c.run = 0
	}
}

// note remembers the first failed write to a file.
func (c *copier) note(err error) {
	if err == nil || c.failed != nil {
		return
	}
	c.failed = fmt.Errorf("write %s: %w", c.name, err)
	if c.warn != nil {
		c.warn(c.failed)
	}
}

// close closes the files.
func (c *copier) close() {
	if c.file != nil {
		if c.timeline != nil {
			c.timeline.put(c.pace.end(c.file.total))
		}
		c.note(c.file.Close())
	}
	if c.filter != nil {
		c.note(c.filter.close())
	}
}
