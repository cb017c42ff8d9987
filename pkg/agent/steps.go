package agent

import (
	"bytes"
	"math"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// maxStepLine bounds how much of a line is searched for a step, in bytes.
const maxStepLine = 4 << 10

// stepFinder finds the numbers of steps in the lines that a worker writes.
type stepFinder struct {
	pattern *regexp.Regexp
	found   chan struct{} // closed when the first step is found

	mu          sync.Mutex
	first, step rdzv.StepMark // the first and the last; valid once found is closed
	gap         int64         // the smallest increase from one step of a stream to the next; 0 if not known
	fell        bool          // a step was smaller than the one before in the same stream
}

func newStepFinder(pattern *regexp.Regexp) *stepFinder {
	return &stepFinder{pattern: pattern, found: make(chan struct{})}
}

// last returns the last step that was found; ok is false if there is none.
func (f *stepFinder) last() (step int64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.step.Step, f.hasFound()
}

func (f *stepFinder) hasFound() bool {
	select {
	case <-f.found:
		return true
	default:
		return false
	}
}

// stream returns a scanner of one of the worker's streams.
func (f *stepFinder) stream() workerlog.Scanner { return &stepStream{finder: f} }

// in returns the step in a line; ok is false if the pattern does not match or the match is no number.
func (f *stepFinder) in(line []byte) (step int64, ok bool) {
	match := f.pattern.FindSubmatch(line)
	if match == nil {
		return 0, false
	}
	step, err := strconv.ParseInt(string(bytes.TrimSpace(match[min(1, len(match)-1)])), 10, 64)
	return step, err == nil
}

// wanted returns how many steps to find in one read: all before the first step is known, one once the gap is the
// smallest possible, otherwise two.
func (f *stepFinder) wanted() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !f.hasFound():
		return math.MaxInt
	case f.gap == 1:
		return 1
	}
	return 2
}

// record records steps that were read together, given in reverse order, and returns the last one. before is the
// previous step of the same stream; nil for none.
func (f *stepFinder) record(before *int64, steps []int64, at time.Time) (last *int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, step := range slices.Backward(steps) {
		if !f.hasFound() {
			f.first = rdzv.StepMark{Step: step, At: at}
			close(f.found)
		}
		if before != nil {
			if gap := step - *before; gap > 0 && (f.gap == 0 || gap < f.gap) {
				f.gap = gap
			} else if gap < 0 {
				f.fell = true
			}
		}
		before, f.step = &step, rdzv.StepMark{Step: step, At: at}
	}
	return before
}

// stepStream splits a stream into lines. A carriage return also ends a line, because progress bars write it.
type stepStream struct {
	finder  *stepFinder
	pending []byte // the beginning of an unfinished line, at most maxStepLine
	last    *int64 // the last step; nil before the first
}

// Scan implements workerlog.Scanner. It searches the lines of p from the last one on, until it has found enough steps.
func (s *stepStream) Scan(p []byte, at time.Time) {
	const ends = "\r\n"
	end := bytes.LastIndexAny(p, ends)
	if end < 0 {
		s.keep(p)
		return
	}
	lines, rest := p[:end], p[end+1:]
	var steps []int64
	search := func(line []byte) {
		if step, ok := s.finder.in(line); ok {
			steps = append(steps, step)
		}
	}
	for wanted := s.finder.wanted(); len(steps) < wanted; {
		begin := bytes.LastIndexAny(lines, ends)
		if begin < 0 {
			s.keep(lines)
			search(s.pending)
			break
		}
		line := lines[begin+1:]
		search(line[:min(len(line), maxStepLine)])
		lines = lines[:begin]
	}
	if len(steps) > 0 {
		s.last = s.finder.record(s.last, steps, at)
	}
	s.pending = s.pending[:0]
	s.keep(rest)
}

func (s *stepStream) keep(p []byte) {
	s.pending = append(s.pending, p[:min(len(p), maxStepLine-len(s.pending))]...)
}
