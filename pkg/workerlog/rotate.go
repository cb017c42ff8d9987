package workerlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
)

// Rotation limits the size of the log file of one stream. The zero value means no limit.
type Rotation struct {
	// MaxSize is the size in bytes at which a file is rotated: it is renamed, and a new one begins. 0 means never.
	MaxSize int64
	// MaxFiles is how many files are kept, including the current one. 0 means all.
	MaxFiles int
}

// logFile is the log file of one stream. With a rotation it is the current one of several. Rotated files are path.1
// (the oldest), path.2 and so on, and keep their names. A file ends at the end of a line. It has at most MaxSize
// bytes, with one exception: a line that began in the file and does not fit is still written to its end, or up to
// MaxSize bytes of it.
//
// If a file cannot be rotated, the stream continues in it, and the next attempt is after another MaxSize bytes.
type logFile struct {
	path     string
	rotation Rotation
	onRotate func(piece int, total int64) // called after each rotation, if not nil
	warn     func(error)                  // called the first time that a rotation fails

	file  *os.File
	piece int   // number of rotated files
	total int64 // bytes written to all files
	size  int64 // bytes of the current file that count against MaxSize
	line  int64 // bytes of them that belong to an unfinished line
}

// openLogFile opens a worker's log file and truncates it. It returns nil if path is empty.
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

// Write writes all of p, to several files if necessary, or returns an error.
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

// fitting returns how much of p fits in the current file, and whether the file is full then. It returns nothing if p
// begins a line that does not fit.
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
	// The line began in this file: write it to its end, unless it is too long for a file.
	most := min(l.rotation.MaxSize-l.line, int64(len(p)))
	if end := bytes.IndexByte(p[:most], '\n'); end >= 0 {
		return p[:end+1], true
	}
	return p[:most], l.line+most == l.rotation.MaxSize
}

// count updates the sizes after p was written.
func (l *logFile) count(p []byte) {
	l.total += int64(len(p))
	l.size += int64(len(p))
	if end := bytes.LastIndexByte(p, '\n'); end >= 0 {
		l.line = int64(len(p) - end - 1)
	} else {
		l.line += int64(len(p))
	}
}

// rotate renames the current file and begins a new one.
func (l *logFile) rotate() {
	l.size, l.line = 0, 0
	next, err := l.openNext()
	if err != nil {
		l.warnOnce(fmt.Errorf("begin a new log file: %w; output continues in the old one", err))
		return
	}
	_ = l.file.Close() // a pending error would be about bytes that Write has counted
	l.file = next
	if l.onRotate != nil {
		l.onRotate(l.piece, l.total)
	}
	if oldest := l.piece - l.rotation.MaxFiles + 1; l.rotation.MaxFiles > 0 && oldest > 0 {
		if err := os.Remove(l.name(oldest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.warnOnce(fmt.Errorf("remove an old log file: %w", err))
		}
	}
}

// openNext renames the current file and opens its successor, or leaves everything unchanged.
func (l *logFile) openNext() (*os.File, error) {
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

func (l *logFile) warnOnce(err error) {
	if l.warn != nil {
		l.warn(err)
		l.warn = nil
	}
}

// Close closes the current file.
func (l *logFile) Close() error { return l.file.Close() }
