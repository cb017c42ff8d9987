package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/seconds"
)

// ErrTooLarge is the error of a file that is larger than its reader allows.
var ErrTooLarge = errors.New("it is too large")

// File is an open file.
type File struct {
	// Exposure says who else could have written the file.
	Exposure Exposure
	// Disclosure says who else may read it.
	Disclosure Disclosure

	file *os.File
	fifo bool
}

// Open opens a regular file without waiting for anything, and judges who could have written it. If pipes is set, the
// path may also name a FIFO, such as /dev/fd/63 for <(command) in a shell, or [os.DevNull].
//
// The error of a file that does not exist is [fs.ErrNotExist].
func Open(path string, pipes bool) (*File, error) {
	f, info, err := open(path, pipes)
	if err != nil {
		return nil, err
	}
	way, end := wayTo(path)
	// A pipe's way ends in /proc/self/fd, where its inode is not visible.
	if !pipes && (end == nil || !os.SameFile(end, info)) {
		_ = f.Close()
		return nil, errors.New("it was replaced while it was being read; try again")
	}
	opened, user := inodeOf(path, regularFile, info), os.Geteuid()
	file := &File{Exposure: judge(append(way, opened), user), file: f, fifo: isFIFO(info)}
	if info.Mode()&fs.ModeDevice == 0 { // os.DevNull holds nothing
		file.Disclosure = opened.disclosure(user, isSealed(f))
	}
	return file, nil
}

// open opens the path and returns what the descriptor refers to.
func open(path string, pipes bool) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(path) // before the file is opened, because opening a device can have an effect
	if err == nil {
		err = checkType(info, pipes)
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = checkType(info, pipes)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

func isFIFO(info fs.FileInfo) bool { return info.Mode()&fs.ModeNamedPipe != 0 }

// checkType refuses files of another type than Open reads.
func checkType(info fs.FileInfo, pipes bool) error {
	switch mode := info.Mode(); {
	case mode.IsRegular(), isFIFO(info) && pipes:
		return nil
	case mode.IsDir():
		return syscall.EISDIR
	case isFIFO(info):
		return errors.New("it is a FIFO, not a regular file")
	case mode&fs.ModeSocket != 0:
		return errors.New("it is a socket, not a regular file")
	}
	if null, err := os.Stat(os.DevNull); err == nil && os.SameFile(null, info) {
		return nil
	}
	return errors.New("it is a device, not a regular file")
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// ReadAll reads the whole file, which must not be larger than limit bytes; else the error is [ErrTooLarge]. The timeout
// limits how long it waits for the writer of a FIFO: once for the first byte, and once for the end.
func (f *File) ReadAll(limit int64, timeout time.Duration) ([]byte, error) {
	if f.fifo {
		if err := awaitWriter(f.file, timeout); err != nil {
			return nil, err
		}
		_ = f.file.SetReadDeadline(time.Now().Add(timeout)) // fails only where a read cannot block
	}
	data, err := io.ReadAll(io.LimitReader(f.file, limit+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("the writer of the FIFO did not close it within %s", seconds.Format(timeout))
	case err != nil:
		return nil, err
	case int64(len(data)) > limit:
		return nil, ErrTooLarge
	}
	return data, nil
}

// awaitWriter waits until a FIFO has data or its writer has closed it. A read before the first writer opens the FIFO
// would return end of file.
func awaitWriter(f *os.File, timeout time.Duration) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var n int
	var pollErr error
	err = raw.Control(func(fd uintptr) {
		until := time.Now().Add(timeout)
		for {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, pollErr = unix.Poll(fds, int(max(0, time.Until(until)).Milliseconds()))
			if !errors.Is(pollErr, unix.EINTR) {
				return
			}
		}
	})
	switch {
	case err != nil:
		return err
	case pollErr != nil:
		return pollErr
	case n == 0:
		return fmt.Errorf("no process wrote to the FIFO for %s", seconds.Format(timeout))
	}
	return nil
}
