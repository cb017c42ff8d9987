package logview

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// point says how many bytes a stream had at a time.
type point struct {
	at    time.Time
	bytes int64
}

// clock returns when the bytes of one stream were written. Between two marks of the timeline it assumes that the
// bytes were written evenly. It reads the timeline once, forward, as far as necessary.
type clock struct {
	timeline  *bufio.Reader // nil: no times are known
	localRank int
	std       workerlog.StreamSet
	tag       []byte // contained in every mark of the stream
	partial   []byte // an unfinished line of the timeline
	ended     bool   // the last read reached the end

	before point   // the last point at or before the requested offset; zero: none
	after  []point // the points read after it, at most two
	last   time.Time
}

func newClock(timeline io.Reader, localRank int, std workerlog.StreamSet) *clock {
	c := &clock{localRank: localRank, std: std, tag: fmt.Appendf(nil, " %d %d ", localRank, std)}
	if timeline != nil {
		c.timeline = bufio.NewReaderSize(timeline, 16<<10)
	}
	return c
}

// reread lets the clock look for marks that were added.
func (c *clock) reread() { c.ended = false }

// saw records that the stream, which had ended at p.bytes, continued at p.at. A reader that is ahead of the timeline
// calls it.
func (c *clock) saw(p point) {
	if len(c.after) == 0 && p.bytes >= c.before.bytes {
		c.before = p
	}
}

// when returns the time of the byte at offset. Offsets never decrease. now is the known end of the stream. The time
// is zero if it is not known.
func (c *clock) when(offset int64, now point) (time.Time, error) {
	for {
		if len(c.after) == 0 {
			m, found, err := c.mark()
			if err != nil {
				return time.Time{}, err
			}
			if !found {
				break
			}
			c.add(m)
		}
		if c.after[0].bytes > offset {
			break
		}
		c.before, c.after = c.after[0], c.after[1:]
	}
	if c.timeline == nil {
		return time.Time{}, nil
	}
	end := now
	if len(c.after) > 0 {
		end = c.after[0]
	}
	at := end.at // before the first mark
	if !c.before.at.IsZero() {
		at = between(c.before, end, offset)
	}
	if at.After(c.last) {
		c.last = at
	}
	return c.last, nil
}

// between returns the time of the byte at offset if the bytes from a to b were written evenly.
func between(a, b point, offset int64) time.Time {
	if b.bytes <= a.bytes || offset <= a.bytes || !b.at.After(a.at) {
		return a.at
	}
	share := float64(min(offset, b.bytes)-a.bytes) / float64(b.bytes-a.bytes)
	return a.at.Add(time.Duration(share * float64(b.at.Sub(a.at))))
}

// add appends the points of a mark. If a pause came before the output, the mark also shows when the output before the
// pause ended.
func (c *clock) add(m workerlog.Mark) {
	if m.Idle > 0 {
		c.after = append(c.after, point{m.At.Add(-m.Idle), m.Bytes})
	}
	c.after = append(c.after, point{m.At, m.Bytes})
}

// skip reads the timeline to the end of the file with number piece, and returns the offset there, at which the next
// file of the log begins. If the timeline does not have that end, it returns the end of the last file before it that
// the timeline has. After skip, offsets passed to when must not be before that one.
func (c *clock) skip(piece int) (offset int64, err error) {
	for {
		m, found, err := c.mark()
		if err != nil || !found {
			return offset, err
		}
		c.before, c.after = point{m.At, m.Bytes}, nil
		if m.Piece > 0 {
			offset = m.Bytes
		}
		if m.Piece == piece {
			return offset, nil
		}
	}
}

// lastPiece reads the timeline to its end. It returns the number of the last rotated file in it, or 0.
func (c *clock) lastPiece() (last int, err error) {
	for {
		m, found, err := c.mark()
		if err != nil || !found {
			return last, err
		}
		last = max(last, m.Piece)
	}
}

// mark returns the stream's next mark, or false if there is none for now.
func (c *clock) mark() (workerlog.Mark, bool, error) {
	for c.timeline != nil && !c.ended {
		text, err := c.timeline.ReadSlice('\n')
		c.partial = append(c.partial, text...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			c.ended = true
			return workerlog.Mark{}, false, nil
		case err != nil:
			return workerlog.Mark{}, false, fmt.Errorf("read the timeline: %w", err)
		}
		if bytes.Contains(c.partial, c.tag) {
			if m, ok := workerlog.ParseMark(c.partial); ok && m.LocalRank == c.localRank && m.Stream == c.std {
				c.partial = c.partial[:0]
				return m, true, nil
			}
		}
		c.partial = c.partial[:0]
	}
	return workerlog.Mark{}, false, nil
}
