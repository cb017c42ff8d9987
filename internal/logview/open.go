package logview

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrNoLogFile says that a path that should be a log file is something else.
var ErrNoLogFile = errors.New("no log file")

// openLog opens a file whose path the user did not give. It follows no symbolic link, because a link could lead to any
// file. It does not block, as opening a FIFO could.
func openLog(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	switch {
	case errors.Is(err, syscall.ELOOP):
		return nil, fmt.Errorf("%w: %s is a symbolic link, which is not followed", ErrNoLogFile, path)
	case errors.Is(err, syscall.ENXIO): // a socket
		return nil, fmt.Errorf("%w: %s is not a regular file", ErrNoLogFile, path)
	case err != nil:
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is not a regular file", ErrNoLogFile, path)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// isOwn reports whether path is a folder that belongs to this user, and not a link to one.
func isOwn(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Geteuid()
}
