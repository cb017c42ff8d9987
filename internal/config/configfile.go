package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxConfigFile is the size of the largest config file, in bytes: a larger file is something else.
const maxConfigFile = 1 << 20

// fifoTimeout is how long a FIFO that --config names may take to deliver the config file.
const fifoTimeout = 30 * time.Second

// configFile is a config file that was read. The zero value is none.
type configFile struct {
	path     string // as the user wrote it, for messages
	named    bool   // --config or its variable names it
	exposure exposure
	values   map[string]any // by the flags' names, as text
}

// readFile finds, reads and checks the config file. A missing file is an error only if --config names it.
func readFile(named Setting) (configFile, error) {
	candidates := []string{FileName}
	if named.Given() {
		candidates = []string{named.Value}
	} else if dir, err := os.UserConfigDir(); err == nil {
		candidates = append(candidates, filepath.Join(dir, "elasticrun", FileName))
	}
	for _, path := range candidates {
		where := shown(path)
		if named.Given() {
			where = named.Where()
		}
		file, err := readConfigFile(path, named.Given())
		switch {
		case err == nil:
			return file, nil
		case isUsage(err):
			return configFile{}, err
		case named.Given() || mayExist(path):
			return configFile{}, &UsageError{Where: where, Problem: "cannot read the config file: " + reason(err)}
		}
		// There is no file, or the home folder is another user's (HOME kept by setpriv or a container).
	}
	return configFile{}, nil
}

func isUsage(err error) bool {
	_, ok := errors.AsType[*UsageError](err)
	return ok
}

// readConfigFile reads and checks one file. Its error is a *UsageError that names the file, unless the file cannot be read.
func readConfigFile(path string, named bool) (configFile, error) {
	f, info, err := openConfigFile(path, named)
	if err != nil {
		return configFile{}, err
	}
	defer func() { _ = f.Close() }()
	// The descriptor says who owns the file and who may write it: a path can lead elsewhere in the next moment.
	way, end := wayTo(path)
	if !named && (end == nil || !os.SameFile(end, info)) {
		return configFile{}, errors.New("it was replaced while it was being read; try again")
	}
	way = append(way, inodeOf(path, theFile, info))
	file := configFile{path: path, named: named, exposure: expose(way, os.Geteuid())}
	if file.exposure.grade == exposedToAnybody && !named {
		return configFile{}, &UsageError{Where: shown(path), Problem: file.exposure.refuseFile(path)}
	}
	data, err := readBounded(f, info, fifoTimeout)
	if err != nil {
		return configFile{}, err
	}
	file.values, err = parseFile(shown(path), data)
	return file, err
}

// openConfigFile opens a config file without waiting for anything, and returns what the descriptor is.
func openConfigFile(path string, named bool) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(path) // before the file is opened, since to open a device may have an effect
	if err == nil {
		err = readable(info, named)
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = readable(info, named)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// readable refuses what is not a regular file. --config may also name a pipe, such as <(command) in a shell.
func readable(info fs.FileInfo, named bool) error {
	switch mode := info.Mode(); {
	case mode.IsRegular(), mode&fs.ModeNamedPipe != 0 && named:
		return nil
	case mode.IsDir():
		return syscall.EISDIR
	case mode&fs.ModeNamedPipe != 0:
		return errors.New("it is a FIFO, not a regular file")
	case mode&fs.ModeSocket != 0:
		return errors.New("it is a socket, not a regular file")
	}
	if null, err := os.Stat(os.DevNull); err == nil && os.SameFile(null, info) {
		return nil
	}
	return errors.New("it is a device, not a regular file")
}

// readBounded reads a whole file that is not too large. A FIFO has so long to deliver it.
func readBounded(f *os.File, info fs.FileInfo, timeout time.Duration) ([]byte, error) {
	fifo := info.Mode()&fs.ModeNamedPipe != 0
	if fifo {
		if err := awaitWriter(f, timeout); err != nil {
			return nil, err
		}
		_ = f.SetReadDeadline(time.Now().Add(timeout)) // fails only where the read cannot block
	}
	data, err := io.ReadAll(io.LimitReader(f, maxConfigFile+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("the FIFO was not written to its end in %v", timeout)
	case err != nil:
		return nil, err
	case len(data) > maxConfigFile:
		return nil, errors.New("it is larger than 1 MiB, which no config file is")
	}
	return data, nil
}

// awaitWriter waits until a FIFO has data or has lost its writer: before the first writer, a read would say end of file.
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
		return fmt.Errorf("nobody wrote to the FIFO for %v", timeout)
	}
	return nil
}

// mayExist reports whether path can be seen, or is hidden by something else than
// the rights of the folders above it.
func mayExist(path string) bool {
	_, err := os.Stat(path)
	if info, linkErr := os.Lstat(path); linkErr == nil && info.Mode()&fs.ModeSymlink != 0 {
		return true // a link to nothing: its file may be on a disk that is not mounted
	}
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission)
}

// refuse returns an error if the file sets a flag that a file with its exposure must not set. A command never comes from a
// file that others could have written; the name of a file to write does if the user named the config file.
func (c configFile) refuse(flags []Flag, settings []Setting) error {
	if c.exposure.grade == unexposed {
		return nil
	}
	for _, s := range settings {
		f, _ := findFlag(flags, s.Name)
		what := ""
		switch {
		case s.Source.Kind != FromFile || s.Value == "":
		case f.Effect == Executes:
			what = "a command"
		case f.Effect == Writes && !c.named:
			what = "a file to write"
		}
		if what != "" {
			return &UsageError{Where: shown(c.path) + ": " + f.Name, Problem: c.exposure.refuseKey(what, f.Name)}
		}
	}
	return nil
}
