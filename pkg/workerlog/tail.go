package workerlog

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Limits of a tail, which is what a failure report shows of a stream's end.
const (
	tailBytes = 8 << 10
	tailLines = 20
)

// tail keeps the last bytes of a stream. Adding costs one copy of at most tailBytes, whatever the number of lines.
type tail struct {
	mu   sync.Mutex
	ring [tailBytes]byte
	seen int64     // bytes added so far; the next one goes to ring[seen%tailBytes]
	at   time.Time // of the last call of add
}

func (t *tail) add(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at = time.Now()
	if skip := len(p) - tailBytes; skip > 0 {
		t.seen += int64(skip)
		p = p[skip:]
	}
	for len(p) > 0 {
		n := copy(t.ring[t.seen%tailBytes:], p)
		t.seen += int64(n)
		p = p[n:]
	}
}

// lines returns the last lines, and when bytes were last added.
func (t *tail) lines() (lines []string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen <= tailBytes {
		return lastLines(t.ring[:t.seen], false), t.at
	}
	from := t.seen % tailBytes
	return lastLines(append(bytes.Clone(t.ring[from:]), t.ring[:from]...), true), t.at
}

// fileTail returns the tail of the file at path, and when the file was last written; nil if it cannot be read.
func fileTail(path string) (lines []string, at time.Time) {
	f, err := os.Open(path)
	if err != nil {
		return nil, at
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, at
	}
	skip := max(0, info.Size()-tailBytes)
	data, err := io.ReadAll(io.NewSectionReader(f, skip, tailBytes))
	if err != nil {
		return nil, at
	}
	return lastLines(data, skip > 0), info.ModTime()
}

// lastLines splits the end of a stream into its last lines, without line ends. Of a line that a progress bar redrew
// it returns the last state. cut says that the stream has more bytes before data. Then the first line is incomplete
// and is dropped, unless it is the only one.
func lastLines(data []byte, cut bool) []string {
	data = bytes.TrimRight(data, "\r\n")
	if len(data) == 0 {
		return nil
	}
	lines := strings.Split(string(data), "\n")
	if cut && len(lines) > 1 {
		lines = lines[1:]
	}
	if len(lines) > tailLines {
		lines = lines[len(lines)-tailLines:]
	}
	for i, line := range lines {
		line = strings.TrimRight(line, "\r")
		lines[i] = line[strings.LastIndexByte(line, '\r')+1:]
	}
	return lines
}
