package evidence

import (
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
)

const (
	// Beyond so many lines a traceback that has not come to its exception, or a message, is given up.
	maxFrames  = 2000
	maxMessage = 200
	// maxMore is how much is kept of what follows the first line of a message, in bytes.
	maxMore = 1 << 10
)

// traceback reads one Python traceback, with those that it is chained to and those that its messages quote. A chain begins with what went
// wrong first: that decides the kind, and comes first in the text. So does what a message quotes, as that of torch's DataLoader, of an error in
// another process.
type traceback struct {
	at      time.Time // when its first line was read; zero where that is not known
	prefix  string    // what stands before "Traceback", and before each of its lines, as torch's "[rank0]: "
	group   bool      // it is of an exception group, whose lines have a margin
	ignored bool      // Python says that the exception had no effect
	lines   int       // since the header, or the exception
	inside  bool      // the exception is still to come
	frame   string    // the innermost so far
	fetches bool      // a DataLoader's is among them

	first, last exception
	loader      string // what a DataLoader says of the death of a process; empty: nothing
	known       bool   // first is set
	linked      bool   // the next header belongs to the same chain
	quotes      bool   // the next header is in the message of last
	quoted      bool   // the next exception is what the last one quotes
}

// exception is one of a chain.
type exception struct {
	text  string
	more  string // the lines of the message that follow
	frame string // the line of the traceback that tells where it was raised
}

// goneLoader is how a finding begins of a DataLoader that has lost a process.
const goneLoader = "a process of a DataLoader is gone: "

var (
	exceptionLine = lazily(`^([A-Za-z_][\w.]*)(: |:?$)`)
	groupMargin   = lazily(`^ *[|+][-+]*( |$)`)
	// dumpedLine is how Python ends a traceback when a signal handler raises while it writes it.
	dumpedLine = lazily(`^object repr     : ([A-Za-z_][\w.]*)\((.*)\)$`)
	chainMark  = lazily(`^(During handling of the above exception|The above exception was the direct cause)`)
	// quoteMark is how torch.multiprocessing begins to quote, and quoteHeader how its DataLoader does.
	quoteMark   = lazily(`^-- Process \d+ terminated with the following error:$`)
	quoteHeader = "Original " + tracebackHeader
	// killedLoader is how a DataLoader says that a process of its own has died, which it has noticed by another exception.
	killedLoader = lazily(`DataLoader worker \(pid.*(is (killed by signal)|exited unexpectedly)`)
	fetchFrame   = lazily(`[/\\]multiprocessing[/\\](connection|resource_sharer|queues|reduction)\.py`)
	fetchError   = lazily(`^(Connection\w*Error|BrokenPipeError|EOFError|FileNotFoundError)\b`)
)

// begin takes a line with a header; false if it does not belong to the chain.
func (t *traceback) begin(line string, at time.Time) bool {
	quoted := t.known && !t.inside && (t.quotes || strings.Contains(line, quoteHeader))
	switch {
	case t.lines == 0:
		before, _, _ := strings.Cut(line, tracebackHeader)
		t.at, t.prefix = at, before
		if t.group = strings.HasSuffix(before, "Exception Group "); t.group {
			t.prefix = strings.TrimSuffix(strings.TrimSuffix(before, "Exception Group "), "  + ")
		}
	case !t.linked && !t.group && !quoted:
		return false
	}
	t.inside, t.linked, t.quotes, t.quoted, t.lines, t.frame, t.fetches = true, false, false, quoted, 1, "", false
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
		t.addMore(line)
		return t.lines <= maxMessage
	}
	dumped := dumpedLine().FindStringSubmatch(line)
	if dumped != nil {
		line = dumped[1] + ": " + dumped[2]
	}
	if !isException(line) {
		if strings.HasPrefix(strings.TrimLeft(line, " "), `File "`) {
			t.frame = line
			t.fetches = t.fetches || strings.Contains(line, "torch/utils/data/dataloader.py")
		}
		return t.lines <= maxFrames
	}
	t.inside, t.lines = false, 1
	next := exception{text: line, frame: t.frame}
	group := strings.Contains(strings.SplitN(t.first.text, ":", 2)[0], "ExceptionGroup") // only a shell of what went wrong
	if !t.known || group || t.quoted && t.first == t.last {
		t.first, t.known = next, true
	}
	t.last = next
	t.ofLoader(next, dumped != nil)
	return true
}

// ofLoader takes note of an exception by which a DataLoader tells that a process of its own has died. Where it fetched from it at that moment, it only
// tells of a connection. cut says that Python has not come to the innermost frame.
func (t *traceback) ofLoader(e exception, cut bool) {
	if m := killedLoader().FindStringSubmatch(e.text); m != nil && (t.loader == "" || m[2] != "") {
		t.loader = e.text
	} else if t.loader == "" && t.fetches && (cut || fetchFrame().MatchString(e.frame)) && fetchError().MatchString(e.text) {
		t.loader = goneLoader + e.text
	}
}

// addMore takes a line after the exception: of its message, or of what is between two of a chain.
func (t *traceback) addMore(line string) {
	switch {
	case chainMark().MatchString(line):
		t.linked = true
	case quoteMark().MatchString(line):
		t.quotes = true
	}
	if t.known && len(t.last.more)+len(line) < maxMore {
		same := t.first == t.last
		t.last.more += "\n" + line
		if same {
			t.first = t.last
		}
	}
}

// isException tells the line with the exception from source code and from what other threads write in between, as "WARNING: ...".
func isException(line string) bool {
	m := exceptionLine().FindStringSubmatch(line)
	return m != nil && m[1] != strings.ToUpper(m[1])
}

// finding says what the traceback is evidence of; false for nothing.
func (t *traceback) finding() (failure.Finding, bool) {
	if !t.known || t.ignored {
		return failure.Finding{}, false
	}
	kind, ok := t.first.kind()
	if !ok {
		return failure.Finding{}, false
	}
	text := t.first.headline()
	if last, ok := t.last.kind(); ok && (last == failure.PeerLost) == (kind == failure.PeerLost) {
		if kind == failure.Exception {
			kind = last
		}
		if end := t.last.headline(); end != text {
			text += " (which led to " + end + ")"
		}
	}
	if t.loader != "" && kind != failure.PeerLost {
		text = t.loader
	}
	return failure.Finding{Kind: kind, Time: t.at, Text: tidy(text)}, true
}

// headline is the exception in one line: its type, and the first line of its message that says something.
func (e exception) headline() string {
	if kind, message, found := strings.Cut(e.text, ":"); found && strings.TrimSpace(message) == "" {
		for line := range strings.Lines(e.more) {
			line = strings.TrimSpace(line)
			if chainMark().MatchString(line) {
				break
			}
			if line != "" {
				return kind + ": " + line
			}
		}
	}
	return e.text
}

// OfErrorFile is what an error file says of the failure, in one line, by its message, "<Type>: <text>", and its traceback, which may be empty;
// ofPeer that it only tells of a peer.
func OfErrorFile(message, callStack string) (text string, ofPeer bool) {
	if all := scanned(callStack); len(all) > 0 {
		last := all[len(all)-1]
		return last.Text, last.Kind == failure.PeerLost
	}
	text, more, _ := strings.Cut(message, "\n")
	e := exception{text: text, more: "\n" + more}
	return e.headline(), e.ofPeer()
}

// scanned returns what a whole text has of evidence.
func scanned(text string) []failure.Finding {
	var s scan
	s.feed([]byte(text), time.Time{})
	s.end()
	return s.found
}
