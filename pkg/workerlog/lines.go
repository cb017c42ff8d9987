package workerlog

import "bytes"

const (
	// maxLine is how many bytes of a line are held back until its end.
	maxLine = 1 << 20
	// batchSize is the size at which a batch is written although more lines are available.
	batchSize = 256 << 10
	// splitMark ends a piece of a line longer than maxLine.
	splitMark = "[line continues: split at 1 MiB]\n"
)

// batch is what one write puts on the console: '\n', the prefix, then text in which every line but the first has its
// own prefix. The console omits the newline if no line of another stream is unfinished, and the prefix if the text
// continues its stream's own line. So a batch always takes one write and no copy.
type batch struct {
	buf       []byte
	prefix    int  // length of the prefix
	continues bool // the text continues a line of which a part was already written
}

// lineSplitter turns the chunks of one stream into batches of whole lines. A line ends with "\n", "\r\n" or a lone
// "\r" (a progress bar). The start of an unfinished line stays pending until feed sees its end, flush writes it as it
// is, or it is longer than maxLine. Then it is split: with a prefix every piece is a marked line of its own, without
// a prefix nothing is added to the stream.
//
// The text of all batches, without prefixes and marks, is the input, byte by byte.
type lineSplitter struct {
	prefix  stampedPrefix
	pending []byte
	// begun says that a part of the unfinished line was written. cr says that this part ends in "\r": then only a "\n"
	// still belongs to the line.
	begun, cr bool
	out       batch // reused; valid until the next call
}

// feed takes bytes from p. It returns the lines that they complete (no bytes if none) and how many bytes it took:
// fewer than all if the batch is full.
func (l *lineSplitter) feed(p []byte) (out batch, taken int) {
	l.reset()
	if len(p) == 0 {
		return l.out, 0
	}
	if p[0] != '\n' { // then a "\r" at the end of the last chunk was a line end
		if bytes.HasSuffix(l.pending, []byte{'\r'}) {
			l.put(nil)
			l.begun = false
		}
		l.begun = l.begun && !l.cr
	}
	l.cr = false

	// Each search continues only after its last result was used, so the total is linear.
	newline, cr := -1, -1
	for taken < len(p) && len(l.out.buf) < batchSize {
		if newline < taken {
			newline = indexFrom(p, taken, '\n')
		}
		if cr < taken {
			cr = indexFrom(p, taken, '\r')
		}
		end := newline + 1
		if cr+1 < newline && cr+1 < len(p) {
			end = cr + 1
		}
		if end > len(p) { // no line end left, or a "\r" that "\n" may follow
			l.pending = append(l.pending, l.split(p[taken:])...)
			return l.out, len(p)
		}
		l.put(l.split(p[taken:end]))
		l.begun = false
		taken = end
	}
	return l.out, taken
}

// flush returns the start of the unfinished line.
func (l *lineSplitter) flush() batch {
	l.reset()
	if len(l.pending) > 0 {
		l.cr = l.pending[len(l.pending)-1] == '\r'
		l.put(nil)
		l.begun = true
	}
	return l.out
}

// split writes pieces of a line, of which tail is the last chunk, while the line is longer than maxLine without its
// line end. It returns the rest of tail.
func (l *lineSplitter) split(tail []byte) []byte {
	for len(l.pending)+len(tail) > maxLine {
		n := maxLine - len(l.pending)
		if n < 0 || len(bytes.TrimRight(tail[n:], "\r\n")) == 0 {
			break // only the line end exceeds maxLine
		}
		l.put(tail[:n])
		if l.begun = len(l.prefix.text) == 0; !l.begun {
			l.out.buf = append(l.out.buf, splitMark...)
		}
		tail = tail[n:]
	}
	return tail
}

// put appends the pending bytes and then p to the batch.
func (l *lineSplitter) put(p []byte) {
	switch {
	case len(l.out.buf) == 0:
		l.out.continues = l.begun
		l.out.buf = append(l.out.buf, '\n')
		fallthrough
	case !l.begun:
		l.out.buf = append(l.out.buf, l.prefix.text...)
	}
	l.out.buf = append(append(l.out.buf, l.pending...), p...)
	l.pending = l.pending[:0]
}

// reset begins a batch. All its prefixes have the time of the batch, because its lines are written at once.
func (l *lineSplitter) reset() {
	l.prefix.stamp()
	l.out = batch{buf: l.out.buf[:0], prefix: len(l.prefix.text)}
}

// indexFrom returns the index of the first c in p[from:] within p, or len(p).
func indexFrom(p []byte, from int, c byte) int {
	if i := bytes.IndexByte(p[from:], c); i >= 0 {
		return from + i
	}
	return len(p)
}
