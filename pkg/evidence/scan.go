package evidence

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
)

const (
	// maxLine is how much of a line is looked at, in bytes.
	maxLine = 4 << 10
	// A Scanner keeps so many findings, the latest. Of one kind there is at most one in sameBurst, the first.
	maxFindings = 16
	sameBurst   = 4 * time.Second
)

// Scanner finds what a worker's stderr has of evidence, with the time when it was read. It holds a few KiB however much it is
// fed, and nothing that it finds depends on how the stream is cut. The zero value is ready. It may be used by several goroutines,
// of which one feeds it.
type Scanner struct {
	mu   sync.Mutex
	s    scan
	used bool
	tell chan<- struct{} // nil: nobody
}

// Scan takes the next bytes of the stream, read at that time. It keeps nothing of p.
func (s *Scanner) Scan(p []byte, read time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = s.used || len(p) > 0
	before := s.s.shown()
	s.s.feed(p, read)
	if s.s.shown() == before {
		return
	}
	select {
	case s.tell <- struct{}{}:
	default: // nobody wants to know, or will soon
	}
}

// Notify makes the Scanner send on c, which should have a buffer of one, when Findings may have something new. It never waits for a receiver. nil
// ends that.
func (s *Scanner) Notify(c chan<- struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell = c
}

// Used reports whether anything was fed.
func (s *Scanner) Used() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// Findings returns what was found so far, in the order of the stream. A line that has no end yet counts as it is.
func (s *Scanner) Findings() []failure.Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := s.s
	end.found = slices.Clone(end.found)
	if end.trace != nil {
		trace := *end.trace
		end.trace = &trace
	}
	end.end()
	return end.found
}

// end takes the stream for complete.
func (s *scan) end() {
	if len(s.line) > 0 {
		s.take(s.line, s.lineAt)
	}
	s.endTraceback()
}

// scan is a Scanner's state.
type scan struct {
	line    []byte    // the line whose end is still to come, at most maxLine of it
	lineAt  time.Time // when its first byte was read
	open    bool      // it has begun
	skipped bool      // the line before says that the next exception has no effect
	trace   *traceback
	found   []failure.Finding
	added   int // to found, ever
}

// shown counts what was found, an exception from its first whole line on.
func (s *scan) shown() int {
	if s.trace != nil && s.trace.known {
		return s.added + 1
	}
	return s.added
}

func (s *scan) feed(p []byte, at time.Time) {
	var next [16]int // where each of notable comes next in p: looked for again only once it is behind
	for i := range notable {
		next[i] = -1
	}
	for pos := 0; pos < len(p); {
		if !s.open && s.trace == nil && !s.skipped {
			pos = s.jump(p, pos, &next)
			if pos == len(p) {
				return
			}
		}
		end := lineEnd(p[pos:])
		if !s.open {
			s.open, s.lineAt = true, at
		}
		s.line = append(s.line, p[pos:pos+min(end, maxLine-len(s.line))]...)
		if pos += end; pos == len(p) {
			return
		}
		pos++
		s.take(s.line, s.lineAt)
		s.line, s.open = s.line[:0], false
	}
}

// jump returns the start of the first line from pos, itself a start, that may be of interest: it has something notable,
// or no end.
func (s *scan) jump(p []byte, pos int, next *[16]int) int {
	first := len(p)
	for i, text := range notable {
		if next[i] < pos {
			if next[i] = bytes.Index(p[pos:], text); next[i] < 0 {
				next[i] = len(p)
			} else {
				next[i] += pos
			}
		}
		first = min(first, next[i])
	}
	return max(pos, bytes.LastIndexAny(p[:first], "\r\n")+1)
}

// lineEnd returns the index of the first line end in p, or len(p).
func lineEnd(p []byte) int {
	end := bytes.IndexByte(p, '\n')
	if end < 0 {
		end = len(p)
	}
	if cr := bytes.IndexByte(p[:end], '\r'); cr >= 0 {
		return cr
	}
	return end
}

// Python and pytest colour what they write where they are told to, by control sequences.
const escape = 0x1b

var colours = lazily(`\x1b\[[0-9;]*[mK]`)

// take judges one line.
func (s *scan) take(line []byte, at time.Time) {
	skipped := s.skipped
	s.skipped = false
	if bytes.IndexByte(line, escape) >= 0 {
		line = colours().ReplaceAll(line, nil)
	}
	if bytes.Contains(line, []byte(tracebackHeader)) {
		s.header(line, at, skipped)
		return
	}
	if s.trace != nil {
		inside := s.trace.inside
		if !s.trace.add(string(line)) {
			s.endTraceback()
		}
		if inside {
			return
		}
	}
	if bytes.HasPrefix(line, []byte("Exception ignored")) {
		s.endTraceback()
		s.skipped = true
		return
	}
	if !slices.ContainsFunc(notable, func(text []byte) bool { return bytes.Contains(line, text) }) {
		return
	}
	if kind, ok := lineKind(line); ok {
		if s.trace != nil {
			if f, known := s.trace.finding(); known && f.Kind == kind { // it is of the exception's message
				return
			}
		}
		s.add(failure.Finding{Kind: kind, Time: at, Text: tidy(string(line))})
	}
}

func (s *scan) header(line []byte, at time.Time, ignored bool) {
	if s.trace != nil && s.trace.begin(string(line), at) {
		return
	}
	s.endTraceback()
	s.trace = &traceback{ignored: ignored}
	s.trace.begin(string(line), at)
}

// endTraceback takes the traceback, if there is one, for complete.
func (s *scan) endTraceback() {
	if s.trace == nil {
		return
	}
	if f, ok := s.trace.finding(); ok {
		s.add(f)
	}
	s.trace = nil
}

// add keeps a finding, unless one of its kind was made just before.
func (s *scan) add(f failure.Finding) {
	for _, old := range slices.Backward(s.found) {
		if old.Kind == f.Kind {
			if f.Time.Sub(old.Time) < sameBurst {
				return
			}
			break
		}
	}
	if len(s.found) == maxFindings {
		s.found = slices.Delete(s.found, 0, 1)
	}
	s.found = append(s.found, f)
	s.added++
}
