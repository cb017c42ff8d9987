package workerlog

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// TimelineName is the name of an attempt's timeline, the file that records when its workers wrote their logs:
//
//	# {"run_id":"job7","round":0,"host":"node0","node_rank":0,"base":0,"workers":8,"role":"default"}
//	1763752174000000 3 1 0
//	1763752175000120 3 1 81920
//	1763752190000042 3 1 90112 quiet=14200331
//	1763752191000007 3 1 104857600 piece=1
//
// The first line is a [TimelineHead], each other line a [Mark]. The marks of one stream are in order. A reader skips
// lines that it cannot parse, because the disk may have been full.
const TimelineName = "timeline"

// TimelineHead identifies the attempt of a timeline.
type TimelineHead struct {
	RunID    string `json:"run_id"`
	Round    int    `json:"round"`
	Host     string `json:"host"`
	NodeRank int    `json:"node_rank"`
	Base     int    `json:"base"` // global rank of the worker with local rank 0
	Workers  int    `json:"workers"`
	Role     string `json:"role"`
	// After says, in words for people, why the workers were started again; empty for the first start.
	After string `json:"after,omitempty"`
}

// headMark begins the line of the head.
const headMark = "# "

// String returns the head's line, without its line end.
func (h TimelineHead) String() string {
	line, _ := json.Marshal(h) // strings and numbers always marshal
	return headMark + string(line)
}

// ParseTimelineHead parses what String returns.
func ParseTimelineHead(line string) (h TimelineHead, ok bool) {
	text, ok := strings.CutPrefix(line, headMark)
	return h, ok && json.Unmarshal([]byte(text), &h) == nil
}

// Mark says how much one stream of one worker had written at a time.
type Mark struct {
	At        time.Time // to the microsecond
	LocalRank int
	Stream    StreamSet // Stdout or Stderr
	// Bytes is the size of the log, including its rotated files.
	Bytes int64
	// Idle is how long the stream had written nothing, or 0 if it did not pause.
	Idle time.Duration
	// Piece is the number of the file that was rotated here, or 0.
	Piece int
}

// String returns the mark's line, without its line end.
func (m Mark) String() string { return string(m.append(nil)) }

func (m Mark) append(b []byte) []byte {
	b = strconv.AppendInt(b, m.At.UnixMicro(), 10)
	for _, n := range []int64{int64(m.LocalRank), int64(m.Stream), m.Bytes} {
		b = strconv.AppendInt(append(b, ' '), n, 10)
	}
	if m.Idle > 0 {
		b = strconv.AppendInt(append(b, " quiet="...), m.Idle.Microseconds(), 10)
	}
	if m.Piece > 0 {
		b = strconv.AppendInt(append(b, " piece="...), int64(m.Piece), 10)
	}
	return b
}

// ParseMark parses what String returns. It ignores fields that it does not know.
func ParseMark(line []byte) (Mark, bool) {
	fields := bytes.Fields(line)
	if len(fields) < 4 {
		return Mark{}, false
	}
	var n [4]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(string(fields[i]), 10, 64); err != nil || n[i] < 0 {
			return Mark{}, false
		}
	}
	m := Mark{At: time.UnixMicro(n[0]), LocalRank: int(n[1]), Stream: StreamSet(n[2]), Bytes: n[3]}
	if n[2] != int64(Stdout) && n[2] != int64(Stderr) {
		return Mark{}, false
	}
	for _, field := range fields[4:] {
		name, text, _ := bytes.Cut(field, []byte{'='})
		value, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil || value < 0 {
			return Mark{}, false
		}
		switch string(name) {
		case "quiet":
			m.Idle = time.Duration(value) * time.Microsecond
		case "piece":
			m.Piece = int(value)
		}
	}
	return m, true
}

const (
	// idleGap is the pause of a stream after which its next output gets a mark.
	idleGap = 100 * time.Millisecond
	// markInterval is how often a stream without such a pause gets a mark.
	markInterval = time.Second
)

// pacer decides which output of one stream gets a mark.
type pacer struct {
	localRank int
	std       StreamSet
	last      time.Time // last write; zero before the first
	marked    time.Time // last mark
}

// writes records that the stream writes at a time when its log has bytes bytes. It returns a mark if one is due.
func (p *pacer) writes(at time.Time, bytes int64) (m Mark, due bool) {
	return p.step(at, bytes, at.Sub(p.last) >= idleGap)
}

// step is writes for callers that know whether the stream had paused.
func (p *pacer) step(at time.Time, bytes int64, paused bool) (m Mark, due bool) {
	quiet, first := at.Sub(p.last), p.last.IsZero()
	p.last = at
	m = p.mark(at, bytes)
	switch {
	case first:
	case paused:
		m.Idle = quiet
	case at.Sub(p.marked) >= markInterval:
	default:
		return Mark{}, false
	}
	p.marked = at
	return m, true
}

// ended returns the mark of a file of the log that was rotated now, at this size of the log.
func (p *pacer) ended(piece int, bytes int64) Mark {
	m := p.mark(p.last, bytes)
	m.Piece = piece
	return m
}

// end returns the mark of the stream's end, which gives its last lines a time. A stream that wrote nothing has none.
func (p *pacer) end(bytes int64) (m Mark, due bool) {
	return p.mark(p.last, bytes), !p.last.IsZero()
}

func (p *pacer) mark(at time.Time, bytes int64) Mark {
	return Mark{At: at, LocalRank: p.localRank, Stream: p.std, Bytes: bytes}
}
