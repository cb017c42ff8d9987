package evidence

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/internal/lazyregexp"
	"github.com/elasticrun/elasticrun/pkg/failure"
)

const (
	// maxLine is how much of a line is examined, in bytes.
	maxLine = 4 << 10
	// maxFindings is the most findings that a Scanner keeps. It drops the oldest.
	maxFindings = 16
	// sameBurst is the time in which a Scanner keeps only the first finding of a kind.
	sameBurst = 4 * time.Second
)

// Scanner finds evidence in a worker's stderr, with the time when it was read. It keeps a few KiB, however long the
// stream is. Its findings do not depend on how the stream is split into reads. The zero value is ready to use. Several
// goroutines may use it, but only one may call Scan.
type Scanner struct {
	mu      sync.Mutex
	s       scan
	used    bool
	changed chan<- struct{} // see Notify; nil for none
}

// Scan examines the next bytes of the stream, which were read at the given time. It does not keep p.
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
	case s.changed <- struct{}{}:
	default: // no receiver, or a notification is pending
	}
}

// Notify makes the Scanner send on c when Findings may have changed. It never waits for a receiver, so c should have a
// buffer of one. Nil ends the notifications.
func (s *Scanner) Notify(c chan<- struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = c
}

// Used reports whether Scan has got any bytes.
func (s *Scanner) Used() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// Findings returns what was found so far, in the order of the stream. It examines an unfinished line as it is.
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

// end examines what is left at the end of the stream.
func (s *scan) end() {
	if len(s.line) > 0 {
		s.take(s.line, s.lineAt)
	}
	s.endTraceback()
	s.endPanic("")
}

// scan is the state of a Scanner.
type scan struct {
	line    []byte    // the unfinished line, at most maxLine of it
	lineAt  time.Time // when its first byte was read
	open    bool      // the line has begun
	ignored bool      // the previous line says that the next exception is ignored
	// panicked is a panic of Rust whose message is in the next line; without a kind if there is none.
	panicked failure.Finding
	trace    *traceback
	found    []failure.Finding
	added    int // number of findings ever added
}

// shown counts the findings so far. An exception counts from its first complete line on.
func (s *scan) shown() int {
	if s.trace != nil && s.trace.known {
		return s.added + 1
	}
	return s.added
}

// offsets holds where each of notable occurs next in the data; -1 before the first search. An offset is searched again
// only when the scan has passed it.
type offsets [len(notable)]int

// feed examines the next bytes of the stream.
func (s *scan) feed(p []byte, at time.Time) {
	var next offsets
	for i := range notable {
		next[i] = -1
	}
	for pos := 0; pos < len(p); {
		if !s.open && s.trace == nil && !s.ignored && s.panicked.Kind == "" {
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

// jump returns the start of the first line from pos on that contains something notable or is unfinished. pos is the
// start of a line.
func (s *scan) jump(p []byte, pos int, next *offsets) int {
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

const escape = 0x1b

// colors matches the control sequences with which Python and pytest color their output.
var colors = lazyregexp.New(`\x1b\[[0-9;]*[mK]`)

// take examines one line.
func (s *scan) take(line []byte, at time.Time) {
	ignored := s.ignored
	s.ignored = false
	if bytes.IndexByte(line, escape) >= 0 {
		line = colors().ReplaceAll(line, nil)
	}
	if s.panicked.Kind != "" {
		if len(bytes.TrimSpace(line)) == 0 { // a line end of two bytes
			return
		}
		s.endPanic(string(line))
	}
	if bytes.Contains(line, []byte(tracebackHeader)) {
		s.header(line, at, ignored)
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
		s.ignored = true
		return
	}
	if !slices.ContainsFunc(notable[:], func(text []byte) bool { return bytes.Contains(line, text) }) {
		return
	}
	if kind, ok := lineKind(line); ok {
		if s.trace != nil {
			if f, known := s.trace.finding(); known && f.Kind == kind { // the line belongs to the exception's message
				return
			}
		}
		f := failure.Finding{Kind: kind, Time: at, Text: tidy(string(line))}
		if m := rustPanic().FindSubmatch(line); m != nil && len(m[2]) == 0 {
			s.panicked = f
			return
		}
		s.add(f)
	}
}

// endPanic keeps a panic of Rust, if there is one that waits for the line with its message.
func (s *scan) endPanic(message string) {
	f := s.panicked
	if f.Kind == "" {
		return
	}
	s.panicked = failure.Finding{}
	if message != "" {
		f.Text = tidy(f.Text + " " + message)
	}
	s.add(f)
}

func (s *scan) header(line []byte, at time.Time, ignored bool) {
	if s.trace != nil && s.trace.begin(string(line), at) {
		return
	}
	s.endTraceback()
	s.trace = &traceback{ignored: ignored}
	s.trace.begin(string(line), at)
}

// endTraceback ends the traceback, if there is one, and keeps its finding.
func (s *scan) endTraceback() {
	if s.trace == nil {
		return
	}
	if f, ok := s.trace.finding(); ok {
		s.add(f)
	}
	s.trace = nil
}

// add keeps a finding, unless there is one of its kind within sameBurst.
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
