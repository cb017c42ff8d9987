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
	// fileQueue is how many events may wait for the disk. Further events are lost.
	fileQueue = 1024
	// closeTimeout is how long Close waits for a disk that does not accept the remaining events.
	closeTimeout = 2 * time.Second
)

// FileLog is a sink that appends the event log to a file. Each event is one line of JSON and one write, so several
// launchers may share the file. Emit never waits for the disk: events that the disk does not accept in time are lost,
// and leave a gap in Seq.
type FileLog struct {
	file  io.WriteCloser
	warn  func(error)
	lines chan []byte
	done  chan struct{} // closed after everything is written and the file is closed; err is set then
	err   error

	mu     sync.Mutex
	seq    int64
	closed bool
}

// OpenFileLog opens the event log at path, and creates it with mode 0600 if it does not exist. Outside /dev it does not
// follow a symbolic link: in a folder that other users may write, a link may lead anywhere. A named pipe must have a
// reader. A goroutine of the log calls warn once, with the first error of a write.
func OpenFileLog(path string, warn func(error)) (*FileLog, error) {
	// Without O_NONBLOCK, opening a pipe without a reader would block forever.
	flags := os.O_WRONLY | os.O_APPEND | os.O_CREATE | syscall.O_NONBLOCK
	if !strings.HasPrefix(filepath.Clean(path), "/dev/") { // /dev/stdout and /dev/stderr are links
		flags |= syscall.O_NOFOLLOW
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if info, lstatErr := os.Lstat(path); errors.Is(err, syscall.ELOOP) && lstatErr == nil &&
		info.Mode()&fs.ModeSymlink != 0 {
		return nil, errors.New("a symbolic link, which is not followed: name the file itself")
	}
	if errors.Is(err, syscall.ENXIO) {
		return nil, errors.New("a pipe that nobody reads")
	}
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, fmt.Errorf("open it for writing: %w", pathErr.Err)
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

// Emit appends e if its kind belongs to the event log. It does not wait for the disk.
func (l *FileLog) Emit(e Event) {
	if !e.Kind.Logged() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	e.Seq = l.seq
	l.seq++
	line, err := e.line()
	if err != nil {
		return // a time after the year 9999
	}
	select {
	case l.lines <- line:
	default:
	}
}

// write writes the queued lines. After an incomplete write it begins the next event on a new line.
func (l *FileLog) write() {
	defer close(l.done)
	warned, partial := false, false
	for line := range l.lines {
		if partial {
			line = append([]byte{'\n'}, line...)
		}
		n, err := l.file.Write(line)
		if err == nil {
			partial = false
			continue
		}
		partial = partial && n == 0 || n > 0 && line[n-1] != '\n'
		if !warned {
			warned = true
			l.warn(err)
		}
	}
	l.err = l.file.Close() // in this goroutine: on a file server that does not answer, close blocks too
}

// Close waits until the queued events are written, at most 2 s. Later events are lost.
func (l *FileLog) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.lines)
	}
	l.mu.Unlock()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-l.done:
		return l.err
	case <-timer.C:
		_ = l.file.Close() // ends a write to a pipe; on a disk that hangs, the goroutine stays
		return fmt.Errorf("events are not written after %v", closeTimeout)
	}
}
