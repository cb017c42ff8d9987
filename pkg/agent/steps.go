package agent

import (
	"bytes"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// maxStepLine bounds how much of a line is searched for a step, in bytes.
const maxStepLine = 4 << 10

// stepFinder finds the numbers of steps in the lines that a worker writes.
type stepFinder struct {
	pattern *regexp.Regexp

	mu    sync.Mutex
	step  int64
	found bool
}

// last returns the last step that was found; ok is false if there is none.
func (f *stepFinder) last() (step int64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.step, f.found
}

// stream returns a scanner of one of the worker's streams.
func (f *stepFinder) stream() workerlog.Scanner { return &stepStream{finder: f} }

// find looks for a step in a line. A match that is no number is none.
func (f *stepFinder) find(line []byte) (found bool) {
	match := f.pattern.FindSubmatch(line)
	if match == nil {
		return false
	}
	step, err := strconv.ParseInt(string(bytes.TrimSpace(match[min(1, len(match)-1)])), 10, 64)
	if err != nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.step, f.found = step, true
	return true
}

// stepStream splits a stream into lines. A carriage return ends one too, because progress bars write it.
type stepStream struct {
	finder  *stepFinder
	pending []byte // the beginning of an unfinished line, at most maxStepLine
}

// Scan implements workerlog.Scanner. Of several steps in p the last one counts, so the others are not looked for.
func (s *stepStream) Scan(p []byte, _ time.Time) {
	const ends = "\r\n"
	end := bytes.LastIndexAny(p, ends)
	if end < 0 {
		s.keep(p)
		return
	}
	lines, rest := p[:end], p[end+1:]
	for found := false; !found; {
		begin := bytes.LastIndexAny(lines, ends)
		if begin < 0 {
			s.keep(lines)
			s.finder.find(s.pending)
			break
		}
		line := lines[begin+1:]
		found = s.finder.find(line[:min(len(line), maxStepLine)])
		lines = lines[:begin]
	}
	s.pending = s.pending[:0]
	s.keep(rest)
}

func (s *stepStream) keep(p []byte) {
	s.pending = append(s.pending, p[:min(len(p), maxStepLine-len(s.pending))]...)
}
