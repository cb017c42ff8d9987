package events

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// fileQueue is how many records may wait for the disk; further ones are lost.
	fileQueue = 1024
	// fileClose is how long Close waits for a disk that does not take what is left.
	fileClose = 2 * time.Second
)

// FileLog appends records to a file, each as a line of JSON in one write, so that several launchers may share the file. It never holds up
// whoever tells it something: what the disk does not take is lost, which Seq shows.
type FileLog struct {
	file  io.WriteCloser
	warn  func(error)
	lines chan []byte
	done  chan struct{} // closed when all is written, and the file closed; err is set then
	err   error

	mu     sync.Mutex
	seq    int64
	closed bool
}

// OpenFileLog opens the file at path, and makes one that is its owner's alone if there is none. A symbolic link is not
// followed, but in /dev: in a folder that others may write it may lead anywhere. A named pipe must have a reader. warn is called once, with the first
// error of a write, by a goroutine of the log's.
func OpenFileLog(path string, warn func(error)) (*FileLog, error) {
	// Without O_NONBLOCK, to open a pipe that nobody reads would take for ever.
	flags := os.O_WRONLY | os.O_APPEND | os.O_CREATE | syscall.O_NONBLOCK
	if !strings.HasPrefix(filepath.Clean(path), "/dev/") { // where stdout and stderr are links
		flags |= syscall.O_NOFOLLOW
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if info, bad := os.Lstat(path); errors.Is(err, syscall.ELOOP) && bad == nil && info.Mode()&fs.ModeSymlink != 0 {
		return nil, errors.New("a symbolic link, which is not followed: name the file itself")
	}
	if errors.Is(err, syscall.ENXIO) {
		return nil, errors.New("a pipe that nobody reads")
	}
	if bad, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, fmt.Errorf("open it for writing: %w", bad.Err)
	}
	if err != nil {
		return nil, err
	}
	return newFileLog(f, warn), nil
}

func newFileLog(file io.WriteCloser, warn func(error)) *FileLog {
	l := &FileLog{file: file, warn: warn, lines: make(chan []byte, fileQueue), done: make(chan struct{})}
	go l.write()
	return l
}

// Tell appends r. It does not wait for the disk.
func (l *FileLog) Tell(r Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	r.Seq = l.seq
	l.seq++
	line, err := r.line()
	if err != nil {
		return // a time beyond the year 9999
	}
	select {
	case l.lines <- line:
	default:
	}
}

// write writes what is told. After a line of which a part alone was written the next one begins on a line of its own.
func (l *FileLog) write() {
	defer close(l.done)
	warned, half := false, false
	for line := range l.lines {
		if half {
			line = append([]byte{'\n'}, line...)
		}
		n, err := l.file.Write(line)
		if err == nil {
			half = false
			continue
		}
		half = half && n == 0 || n > 0 && line[n-1] != '\n'
		if !warned {
			warned = true
			l.warn(err)
		}
	}
	l.err = l.file.Close() // here, since a file server that is gone holds this up, too
}

// Close waits until the records are written, 2 s at most. What is told later is lost.
func (l *FileLog) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.lines)
	}
	l.mu.Unlock()
	bound := time.NewTimer(fileClose)
	defer bound.Stop()
	select {
	case <-l.done:
		return l.err
	case <-bound.C:
		_ = l.file.Close() // which ends the write to a pipe; a disk that hangs keeps its goroutine
		return fmt.Errorf("events are not written after %v", fileClose)
	}
}
