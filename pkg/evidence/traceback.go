package evidence

import (
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/lazyregexp"
	"github.com/elasticrun/elasticrun/pkg/failure"
)

const (
	// maxFrames is the most lines of a traceback before its exception, maxMessage the most lines of a message. The
	// traceback ends at these limits.
	maxFrames  = 2000
	maxMessage = 200
	// maxMore is how much of a message is kept after its first line, in bytes.
	maxMore = 1 << 10
)

// traceback reads one Python traceback, with the ones that are chained to it and the ones that its messages quote. A
// chain begins with what went wrong first: that decides the kind and comes first in the text. The same holds for a
// quoted traceback, as torch's DataLoader quotes an error in another process.
type traceback struct {
	at      time.Time // when its first line was read; zero if unknown
	prefix  string    // the text before "Traceback" and before each of its lines, such as torch's "[rank0]: "
	group   bool      // it belongs to an exception group, whose lines have a margin
	ignored bool      // Python says that the exception was ignored
	lines   int       // since the header, or the exception
	inside  bool      // the line with the exception has not come yet
	frame   string    // the innermost frame so far
	fetches bool      // a frame of a DataLoader is among them

	first, last exception
	loader      string // a DataLoader's report of the end of a process; empty for none
	known       bool   // first is set
	linked      bool   // the next header belongs to the same chain
	quotes      bool   // the next header is in the message of last
	quoted      bool   // the next exception is quoted by the last one
}

// exception is one exception of a chain.
type exception struct {
	text  string
	more  string // the further lines of the message
	frame string // the line of the traceback with the place where it was raised
}

// goneLoader begins the finding about a DataLoader that has lost a process.
const goneLoader = "a process of a DataLoader is gone: "

var (
	exceptionLine = lazyregexp.New(`^([A-Za-z_][\w.]*)(: |:?$)`)
	groupMargin   = lazyregexp.New(`^ *[|+][-+]*( |$)`)
	// dumpedLine matches how Python ends a traceback if a signal handler raises while Python writes it.
	dumpedLine = lazyregexp.New(`^object repr     : ([A-Za-z_][\w.]*)\((.*)\)$`)
	chainMark  = lazyregexp.New(`^(During handling of the above exception|The above exception was the direct cause)`)
	// quoteMark matches how torch.multiprocessing begins a quote. quoteHeader is how torch's DataLoader does.
	quoteMark   = lazyregexp.New(`^-- Process \d+ terminated with the following error:$`)
	quoteHeader = "Original " + tracebackHeader
	// killedLoader matches how a DataLoader reports that one of its processes has died, which it noticed through another
	// exception.
	killedLoader = lazyregexp.New(`DataLoader worker \(pid.*(is (killed by signal)|exited unexpectedly)`)
	fetchFrame   = lazyregexp.New(`[/\\]multiprocessing[/\\](connection|resource_sharer|queues|reduction)\.py`)
	fetchError   = lazyregexp.New(`^(Connection\w*Error|BrokenPipeError|EOFError|FileNotFoundError)\b`)
)

// begin takes a line with a header. It returns false if the header does not belong to the chain.
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

// add takes the next line. It returns false if the traceback has ended.
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
	group := strings.Contains(strings.SplitN(t.first.text, ":", 2)[0], "ExceptionGroup") // it only wraps what went wrong
	if !t.known || group || t.quoted && t.first == t.last {
		t.first, t.known = next, true
	}
	t.last = next
	t.noteLoader(next, dumped != nil)
	return true
}

// noteLoader notes an exception with which a DataLoader reports that one of its processes has died. If it was fetching
// from that process, the exception is only about a connection. cut says that the innermost frame is missing.
func (t *traceback) noteLoader(e exception, cut bool) {
	if m := killedLoader().FindStringSubmatch(e.text); m != nil && (t.loader == "" || m[2] != "") {
		t.loader = e.text
	} else if t.loader == "" && t.fetches && (cut || fetchFrame().MatchString(e.frame)) &&
		fetchError().MatchString(e.text) {
		t.loader = goneLoader + e.text
	}
}

// addMore takes a line after the exception. It belongs to the message, or stands between two exceptions of a chain.
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

// isException distinguishes the line with the exception from source code and from the output of other threads, such as
// "WARNING: ...".
func isException(line string) bool {
	m := exceptionLine().FindStringSubmatch(line)
	return m != nil && m[1] != strings.ToUpper(m[1])
}

// finding returns what the traceback is evidence of; false for nothing.
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

// headline returns the exception in one line: its type, and the first line of its message that is not blank. If the
// message quotes another exception as its cause, as that of torch's monitoredBarrier does, the line ends with that.
func (e exception) headline() string {
	text := e.text
	if kind, message, found := strings.Cut(text, ":"); found && strings.TrimSpace(message) == "" {
		if line := firstText(e.more); line != "" {
			text = kind + ": " + line
		}
	}
	if _, cause, found := strings.Cut(e.more, quotedCause); found && !strings.Contains(text, quotedCause) {
		if line := firstText(cause); line != "" {
			text += ": " + line
		}
	}
	return text
}

// quotedCause is in the message of an exception that quotes another one as its cause.
const quotedCause = "Original exception:"

// firstText returns the first of the lines of a message that is not blank; empty for none.
func firstText(lines string) string {
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		if chainMark().MatchString(line) {
			break // the next exception follows
		}
		if line != "" {
			return line
		}
	}
	return ""
}

// SummarizeErrorFile returns in one line what an error file says about the failure. message is "<Type>: <text>";
// callStack is a traceback and may be empty. ofPeer reports whether the file is only about a peer.
func SummarizeErrorFile(message, callStack string) (text string, ofPeer bool) {
	if all := scanned(callStack); len(all) > 0 {
		last := all[len(all)-1]
		return last.Text, last.Kind == failure.PeerLost
	}
	text, more, _ := strings.Cut(message, "\n")
	e := exception{text: text, more: "\n" + more}
	return e.headline(), e.ofPeer()
}

// scanned returns the evidence in a complete text.
func scanned(text string) []failure.Finding {
	var s scan
	s.feed([]byte(text), time.Time{})
	s.end()
	return s.found
}
