package evidence

import (
	"strings"
	"time"
)

const (
	// Beyond so many lines a traceback that has not come to its exception, or a message, is given up.
	maxFrames  = 2000
	maxMessage = 200
	// maxMore is how much is kept of what follows the first line of a message, in bytes.
	maxMore = 1 << 10
)

// traceback reads one Python traceback, with those that it is chained to. A chain begins with what went wrong first:
// that decides the kind. The text is the last exception of the same kind of blame, as frameworks wrap what they
// catch, while the end of a process group in a "finally" only adds a peer's error.
type traceback struct {
	at      time.Time // when its first line was read; zero where that is not known
	prefix  string    // what stands before "Traceback", and before each of its lines, as torch's "[rank0]: "
	group   bool      // it is of an exception group, whose lines have a margin
	ignored bool      // Python says that the exception had no effect
	lines   int       // since the header, or the exception
	inside  bool      // the exception is still to come

	first, last exception
	known       bool // first is set
	linked      bool // the next header belongs to the same chain
}

// exception is one of a chain.
type exception struct {
	text string
	more string // the lines of the message that follow
}

var (
	exceptionLine = lazily(`^([A-Za-z_][\w.]*)(: |:?$)`)
	groupMargin   = lazily(`^ *[|+][-+]*( |$)`)
	chainMark     = lazily(`^(During handling of the above exception|The above exception was the direct cause)`)
)

// begin takes a line with a header; false if it does not belong to the chain.
func (t *traceback) begin(line string, at time.Time) bool {
	switch {
	case t.lines == 0:
		before, _, _ := strings.Cut(line, tracebackHeader)
		t.at, t.prefix = at, before
		if t.group = strings.HasSuffix(before, "Exception Group "); t.group {
			t.prefix = strings.TrimSuffix(strings.TrimSuffix(before, "Exception Group "), "  + ")
		}
	case !t.linked && !t.group:
		return false
	}
	t.inside, t.linked, t.lines = true, false, 1
	return true
}

// add takes the next line; false when it says that the traceback has come to its end.
func (t *traceback) add(line string) bool {
	t.lines++
	line = strings.TrimPrefix(line, t.prefix)
	if t.group {
		line = groupMargin().ReplaceAllString(line, "")
	}
	if !t.inside {
		if chainMark().MatchString(line) {
			t.linked = true
		}
		for _, e := range []*exception{&t.first, &t.last} {
			if t.known && e.text == t.last.text && len(e.more)+len(line) < maxMore {
				e.more += "\n" + line
			}
		}
		return t.lines <= maxMessage
	}
	if !isException(line) {
		return t.lines <= maxFrames
	}
	t.inside, t.lines = false, 1
	next := exception{text: line}
	group := strings.Contains(strings.SplitN(t.first.text, ":", 2)[0], "ExceptionGroup") // only a shell of what went wrong
	if !t.known || group {
		t.first, t.last, t.known = next, next, true
		return true
	}
	t.last = next
	return true
}

// isException tells the line with the exception from source code and from what other threads write in between, as "WARNING: ...".
func isException(line string) bool {
	m := exceptionLine().FindStringSubmatch(line)
	return m != nil && m[1] != strings.ToUpper(m[1])
}

// finding says what the traceback is evidence of; false for nothing.
func (t *traceback) finding() (Finding, bool) {
	if !t.known || t.ignored {
		return Finding{}, false
	}
	kind, ok := exceptionKind(t.first.text, t.first.more)
	if !ok {
		return Finding{}, false
	}
	text := t.first.text
	if last, ok := exceptionKind(t.last.text, t.last.more); ok && (last == PeerLost) == (kind == PeerLost) {
		text = t.last.text
		if kind == Exception {
			kind = last
		}
	}
	return Finding{Kind: kind, Time: t.at, Text: tidy(text)}, true
}
