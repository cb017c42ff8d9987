package workerlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
)

// Rotation bounds the log file of one stream. The zero value does not.
type Rotation struct {
	// MaxSize is the size in bytes at which a file is put aside and a new one
	// begins; 0 is never.
	MaxSize int64
	// MaxFiles is how many files are kept, the current one included; 0 is all.
	MaxFiles int
}

// logFile is the log file of one stream. With a rotation it is the current one of
// several: what was put aside is path.1, the oldest, path.2 and so on, and keeps
// its name. A file ends at the end of a line. It is at most MaxSize bytes long, but
// where a line was begun in it that no longer fits: it goes on to the end of that
// line, or, if that is longer than MaxSize, to as much of it.
//
// Where a file cannot be put aside, the stream goes on in it, and the next try is
// after another MaxSize bytes.
type logFile struct {
	path     string
	rotation Rotation
	aside    func(piece int, total int64) // told of each file put aside, if not nil
	warn     func(error)                  // told the first time that one cannot be

	file  *os.File
	piece int   // files put aside
	total int64 // bytes written to all files
	size  int64 // of the current file, as far as it counts against MaxSize
	line  int64 // of that, what belongs to a line whose end is missing
}

// openLogFile opens a worker's log file, empty; no path is no file.
func openLogFile(path string, rotation Rotation, warn func(error)) (*logFile, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	return &logFile{path: path, rotation: rotation, warn: warn, file: file}, nil
}

// Write writes all of p, to several files if need be, or returns why not.
func (l *logFile) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		part := p
		cut := false
		if l.rotation.MaxSize > 0 {
			part, cut = l.fitting(p)
		}
		var written int
		written, err = l.file.Write(part)
		l.count(part[:written])
		n += written
		p = p[written:]
		if cut && err == nil {
			l.rotate()
		}
	}
	return n, err
}

// fitting returns how much of p the current file takes, and whether it is full
// then. It takes nothing where p begins a line that does not fit.
func (l *logFile) fitting(p []byte) (part []byte, cut bool) {
	room := max(0, l.rotation.MaxSize-l.size)
	if int64(len(p)) <= room {
		return p, false
	}
	if end := bytes.LastIndexByte(p[:room], '\n'); end >= 0 {
		return p[:end+1], true
	}
	if l.line == 0 && l.size > 0 {
		return nil, true
	}
	// The line that was begun here: to its end, unless it is too long for a file.
	most := min(l.rotation.MaxSize-l.line, int64(len(p)))
	if end := bytes.IndexByte(p[:most], '\n'); end >= 0 {
		return p[:end+1], true
	}
	return p[:most], l.line+most == l.rotation.MaxSize
}

// count keeps the books on bytes that were written.
func (l *logFile) count(p []byte) {
	l.total += int64(len(p))
	l.size += int64(len(p))
	if end := bytes.LastIndexByte(p, '\n'); end >= 0 {
		l.line = int64(len(p) - end - 1)
	} else {
		l.line += int64(len(p))
	}
}

// rotate puts the current file aside and begins a new one.
func (l *logFile) rotate() {
	l.size, l.line = 0, 0
	next, err := l.putAside()
	if err != nil {
		l.complain(fmt.Errorf("begin a new log file: %w; output goes on into the old one", err))
		return
	}
	_ = l.file.Close() // a pending error was for bytes that Write had counted
	l.file = next
	if l.aside != nil {
		l.aside(l.piece, l.total)
	}
	if oldest := l.piece - l.rotation.MaxFiles + 1; l.rotation.MaxFiles > 0 && oldest > 0 {
		if err := os.Remove(l.name(oldest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.complain(fmt.Errorf("remove an old log file: %w", err))
		}
	}
}

// putAside renames the current file and opens its successor, or leaves all as it was.
func (l *logFile) putAside() (*os.File, error) {
	old := l.name(l.piece + 1)
	if err := os.Rename(l.path, old); err != nil {
		return nil, err
	}
	next, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644)
	if err != nil {
		return nil, errors.Join(err, os.Rename(old, l.path))
	}
	l.piece++
	return next, nil
}

func (l *logFile) name(piece int) string { return l.path + "." + strconv.Itoa(piece) }

func (l *logFile) complain(err error) {
	if l.warn != nil {
		l.warn(err)
		l.warn = nil
	}
}

// Close closes the current file.
func (l *logFile) Close() error { return l.file.Close() }
