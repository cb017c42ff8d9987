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

// point says that a stream had so many bytes at a time.
type point struct {
	at    time.Time
	bytes int64
}

// clock tells when the bytes of one stream were written: between two marks of its
// timeline, evenly. It reads the timeline once, forward, as far as it must.
type clock struct {
	timeline  *bufio.Reader // nil: nothing tells
	localRank int
	std       workerlog.Std
	tag       []byte // what every mark of the stream holds
	partial   []byte // a line of the timeline whose end is missing
	ended     bool   // there was no more when it was read last

	before point   // the last one at or before the offset asked for; zero: none
	after  []point // those read beyond it, at most two
	last   time.Time
}

func newClock(timeline io.Reader, localRank int, std workerlog.Std) *clock {
	c := &clock{localRank: localRank, std: std, tag: fmt.Appendf(nil, " %d %d ", localRank, std)}
	if timeline != nil {
		c.timeline = bufio.NewReaderSize(timeline, 16<<10)
	}
	return c
}

// again lets the clock look for marks that were added.
func (c *clock) again() { c.ended = false }

// saw says that the stream, which had ended at p.bytes, went on at p.at. It is for
// readers that are faster than the timeline.
func (c *clock) saw(p point) {
	if len(c.after) == 0 && p.bytes >= c.before.bytes {
		c.before = p
	}
}

// when returns the time of the byte at offset; offsets never go back. now is what is
// known of the stream's end. The time is zero where nothing tells.
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

// between is the time of the byte at offset if those from a to b were written evenly.
func between(a, b point, offset int64) time.Time {
	if b.bytes <= a.bytes || offset <= a.bytes || !b.at.After(a.at) {
		return a.at
	}
	share := float64(min(offset, b.bytes)-a.bytes) / float64(b.bytes-a.bytes)
	return a.at.Add(time.Duration(share * float64(b.at.Sub(a.at))))
}

// add appends the points of a mark: output that begins after a pause also tells when
// the output before it ended.
func (c *clock) add(m workerlog.Mark) {
	if m.Idle > 0 {
		c.after = append(c.after, point{m.At.Add(-m.Idle), m.Bytes})
	}
	c.after = append(c.after, point{m.At, m.Bytes})
}

// skip goes on to the end of the piece of that number and returns the offset there,
// which is where the next file of the log begins. Where that is not known it returns
// that of the last piece before. It is called before when, for offsets behind it.
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

// lastPiece returns the number of the last piece that a timeline tells of, or 0. It
// reads it to its end.
func (c *clock) lastPiece() (last int, err error) {
	for {
		m, found, err := c.mark()
		if err != nil || !found {
			return last, err
		}
		last = max(last, m.Piece)
	}
}

// mark returns the stream's next mark, and false where there is none for now.
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
			if m, ok := workerlog.ParseMark(c.partial); ok && m.LocalRank == c.localRank && m.Std == c.std {
				c.partial = c.partial[:0]
				return m, true, nil
			}
		}
		c.partial = c.partial[:0]
	}
	return workerlog.Mark{}, false, nil
}
