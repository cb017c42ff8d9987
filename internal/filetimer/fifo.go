package filetimer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// errReplaced means that the path names another file than a moment ago. claim then tries again.
var errReplaced = errors.New("another program replaces it all the time")

// claim opens the FIFO at path for reading and makes this process its only server. It makes the FIFO if there is none
// or an empty file, and takes over a FIFO without a server.
//
// A FIFO that is open for reading has a server, of this package or of torch. A server of this package also locks the
// FIFO, which decides between two that start at once.
func claim(path string) (*os.File, error) {
	for range 10 {
		f, err := tryClaim(path)
		if !errors.Is(err, errReplaced) {
			return f, err
		}
	}
	return nil, errReplaced
}

func tryClaim(path string) (*os.File, error) {
	if err := unix.Mkfifo(path, 0o600); errors.Is(err, unix.EEXIST) {
		if err := inspect(path); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, fmt.Errorf("cannot make a FIFO there: %w", err)
	}
	// O_RDWR opens at once, and the FIFO never has an end: this process counts as a writer.
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, errReplaced
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the FIFO: %w", err)
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = unix.Close(fd)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errServed
		}
		return nil, fmt.Errorf("cannot lock the FIFO: %w", err)
	}
	f := os.NewFile(uintptr(fd), path)
	if !names(path, f) {
		_ = f.Close()
		return nil, errReplaced
	}
	_ = f.Chmod(0o600) // of a FIFO that torch's agent has left; others may not write requests
	return f, nil
}

// errServed means that another process serves the FIFO.
var errServed = errors.New("another agent serves it")

// names reports whether path names the open file f.
func names(path string, f *os.File) bool {
	there, err := os.Lstat(path)
	if err != nil {
		return false
	}
	open, err := f.Stat()
	return err == nil && os.SameFile(there, open)
}

// inspect looks at a file that is in the way. It returns nil if the file is a FIFO without a server. It removes an
// empty file, such as one of mktemp, and returns errReplaced.
func inspect(path string) error {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		return errReplaced
	case err != nil:
		return fmt.Errorf("cannot look at it: %w", err)
	case int(st.Uid) != os.Geteuid():
		return errors.New("it belongs to another user")
	case st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == 0:
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot replace the empty file: %w", err)
		}
		return errReplaced
	case st.Mode&unix.S_IFMT != unix.S_IFIFO:
		return errors.New("it exists and is no FIFO")
	}
	// Opening a FIFO for writing fails if nobody has it open for reading.
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err == nil {
		_ = unix.Close(fd)
		return errServed
	}
	return nil
}

// claimTemporary makes a FIFO with a new name in the folder for temporary files, as torch's agent does.
func claimTemporary() (*os.File, error) {
	empty, err := os.CreateTemp("", "watchdog_timer_*")
	if err != nil {
		return nil, fmt.Errorf("make a FIFO: %w", err)
	}
	_ = empty.Close()
	f, err := claim(empty.Name())
	if err != nil {
		_ = os.Remove(empty.Name())
		return nil, fmt.Errorf("make a FIFO at %s: %w", empty.Name(), err)
	}
	return f, nil
}
