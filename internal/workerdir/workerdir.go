// Package workerdir makes a launcher's folder for the files through which it and its workers communicate: heartbeats,
// notices and the like. It does not know the files.
package workerdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// prefix begins the name of each such folder.
const prefix = "elasticrun-workers-"

// Dir is the folder of one launcher. Close it.
type Dir struct {
	path string
	lock *os.File // the folder; the kernel releases the lock when the launcher ends, however that happens
}

// Open makes a folder that only this user can enter: in memory if possible, and otherwise in the temporary folder. It
// also removes the folders that killed launchers have left there.
func Open() (*Dir, error) {
	var errs []error
	for _, parent := range []string{"/dev/shm", os.TempDir()} {
		removeAbandoned(parent)
		path, err := os.MkdirTemp(parent, prefix)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		d := &Dir{path: path}
		if d.lock, err = os.Open(path); err == nil {
			err = unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		}
		if err == nil {
			return d, nil
		}
		d.Close()
		errs = append(errs, fmt.Errorf("lock %s: %w", path, err))
	}
	return nil, errors.Join(errs...)
}

// startTime is longer than a launcher needs from making its folder to locking it. Younger folders are not removed.
const startTime = time.Minute

// removeAbandoned removes the folders of this user that no launcher has locked, except new ones.
func removeAbandoned(parent string) {
	folders, _ := filepath.Glob(filepath.Join(parent, prefix+"*"))
	for _, folder := range folders {
		dir, err := os.OpenFile(folder, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		info, err := dir.Stat()
		if err == nil && isAbandoned(dir, info) {
			_ = os.RemoveAll(folder)
		}
		_ = dir.Close()
	}
}

func isAbandoned(dir *os.File, info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid() && time.Since(info.ModTime()) > startTime &&
		unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// Path returns the folder.
func (d *Dir) Path() string { return d.path }

// Close removes the folder with its files.
func (d *Dir) Close() {
	_ = os.RemoveAll(d.path)
	if d.lock != nil {
		_ = d.lock.Close()
	}
}
