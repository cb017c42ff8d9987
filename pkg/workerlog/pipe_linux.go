package workerlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// growPipe asks for a larger pipe, so that reader and writer alternate less often. If the kernel refuses, or f is not
// a pipe, nothing changes.
func growPipe(f *os.File, bytes int) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		if size, err := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0); err == nil && size < bytes {
			_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, bytes)
		}
	})
}

// reopenForDeadlines opens the pipe or terminal behind f again, non-blocking, so that a write to it can be ended. The
// non-blocking flag belongs to the open file, which f shares with other processes; the new open file belongs to this
// process alone.
func reopenForDeadlines(f *os.File) (*os.File, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice) == 0 {
		return nil, errors.ErrUnsupported
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var own int
	controlErr := conn.Control(func(fd uintptr) {
		const flags = unix.O_WRONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
		own, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), flags, 0)
	})
	if err := errors.Join(controlErr, err); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(own), f.Name()), nil
}
