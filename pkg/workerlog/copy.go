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
	// readSize is how much is read and shown at once. With this size the data of several streams stays in a core's
	// cache.
	readSize = 128 << 10
	// fileSize is how much is written to a file at once. With larger writes the page cache allocates larger pieces of
	// memory, which took up to twice the CPU time.
	fileSize = 8 << 10
	// flushDelay is how long a stream pauses before its unfinished line is shown.
	flushDelay = 50 * time.Millisecond
	// After burst bytes without such a pause, the full pipe may have blocked the writer in the middle of a line, and
	// the writer needs CPU time to continue. Then the pause must be flushDelayAfterBurst.
	burst                = 64 << 10
	flushDelayAfterBurst = 250 * time.Millisecond
)

// copier moves the bytes of one stream, in one goroutine. Only tail, and the fields guarded by mu, are shared.
type copier struct {
	name    string
	file    *logFile       // nil: none
	filter  *lineFilter    // nil: none
	console *consoleWriter // nil: not shown
	lines   *lineSplitter  // with console
	tail    tail
	scan    Scanner // nil: none
	warn    func(error)

	timeline *Timeline // records when file is written; nil: none
	pace     pacer     // with timeline

	mu          sync.Mutex    // orders the read deadlines that two goroutines set
	idleTimeout time.Duration // guarded by mu: how long a silent pipe is still read; 0: forever
	since       time.Time     // guarded by mu: when the last bytes were read

	armed  bool  // the pipe has a read deadline for the unfinished line
	run    int   // bytes since the stream last had no unfinished line
	failed error // the first failed write to a file
	unseen int64 // bytes that the console did not receive
}

// copy reads until end of file, or until pipe is closed. After ctx ends, the console receives nothing more.
func (c *copier) copy(ctx context.Context, pipe *os.File) error {
	buf := make([]byte, readSize)
	var readErr error
	for readErr == nil {
		var n int
		n, readErr = pipe.Read(buf)
		c.take(ctx, buf[:n])
		if errors.Is(readErr, os.ErrDeadlineExceeded) && !c.isIdle() {
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

// take passes one chunk on. After a failed write to a file it tries again with the next chunk, because space on a
// full disk may be freed.
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
			c.recordError(err)
		}
	}
	if c.filter != nil {
		c.recordError(c.filter.feed(p))
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

// setIdleTimeout is called once every process that should write has ended. A pipe that stays open and silent for d is
// held by a process outside the job.
func (c *copier) setIdleTimeout(pipe *os.File, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idleTimeout = d
	_ = pipe.SetReadDeadline(time.Now().Add(d))
}

func (c *copier) isIdle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idleTimeout > 0 && time.Since(c.since) >= c.idleTimeout
}

// arm sets the read deadline after a read of n bytes. If there is an unfinished line, it is the time at which the
// line is shown; otherwise it is the end of the idle timeout.
func (c *copier) arm(pipe *os.File, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 {
		c.since = time.Now()
	}
	switch {
	case c.console != nil && len(c.lines.pending) > 0:
		c.run += n
		pause := flushDelay
		if c.run >= burst {
			pause = flushDelayAfterBurst
		}
		c.armed = pipe.SetReadDeadline(time.Now().Add(pause)) == nil
	case c.idleTimeout > 0:
		_ = pipe.SetReadDeadline(time.Now().Add(c.idleTimeout))
	case c.armed:
		c.armed = false
		_ = pipe.SetReadDeadline(time.Time{})
		fallthrough
	default:
		c.run = 0
	}
}

// recordError records the first failed write to a file.
func (c *copier) recordError(err error) {
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
		c.recordError(c.file.Close())
	}
	if c.filter != nil {
		c.recordError(c.filter.close())
	}
}
