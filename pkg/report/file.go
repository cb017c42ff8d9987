package report

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
)

// CheckFile finds out whether the file at path can be written when the time comes: its folder must exist and take a new
// file. What is at path stays as it is.
func CheckFile(path string) error {
	path, mode, err := resolve(path)
	if err != nil {
		return err
	}
	probe, err := create(path, mode)
	if err != nil {
		return err
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// LookFile is CheckFile for who may not make a file: it looks at the rights alone.
func LookFile(path string) error {
	path, _, err := resolve(path)
	if err != nil {
		return err
	}
	const write, enter = 2, 1 // W_OK, X_OK
	folder, _ := filepath.Split(path)
	if err := syscall.Access(filepath.Clean(folder), write|enter); err != nil {
		return fmt.Errorf("make a file in %s: %w", folder, err)
	}
	return nil
}

// WriteFile makes data the whole content of the file at path, at once unless the file is a mount point. An error leaves
// what was there before. What is not a regular file is refused, because it would be replaced, and so is a symbolic link:
// in a folder that others may write it may lead anywhere. A new file is for its owner alone; one of this user's own keeps
// its mode.
func WriteFile(path string, data []byte) error {
	path, mode, err := resolve(path)
	if err != nil {
		return err
	}
	f, err := create(path, mode)
	if err != nil {
		return err
	}
	if err = fill(f, data); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	if errors.Is(err, syscall.EBUSY) { // a file that is mounted there, as container runtimes do, has to stay
		return overwrite(path, data)
	}
	return err
}

func overwrite(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return fill(f, data)
}

// private is the mode of a new file: reports have arguments of scripts and what workers wrote last.
const private fs.FileMode = 0o600

// resolve returns the absolute path of the file, and the mode that it is to have.
func resolve(path string) (string, fs.FileMode, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", 0, err
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path, private, nil
	case err != nil:
		return "", 0, err
	case info.Mode()&fs.ModeSymlink != 0:
		return "", 0, fmt.Errorf("%s is a symbolic link, which is not followed: name the file itself", path)
	case !info.Mode().IsRegular():
		return "", 0, fmt.Errorf("%s is not a regular file", path)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == os.Geteuid() {
		return path, info.Mode().Perm(), nil
	}
	return path, private, nil
}

// fill writes data to f and closes it. It is on the disk before it gets its name, so that a crash of the machine does
// not leave an empty file.
func fill(f *os.File, data []byte) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// create makes the file that is to become the one at path. A name may be as long as the file system allows, so no more
// than a part of it is in the temporary one.
func create(path string, mode fs.FileMode) (*os.File, error) {
	folder, name := filepath.Split(path)
	for {
		temp := fmt.Sprintf(".%s.%08x", name[:min(len(name), 64)], rand.Uint32())
		f, err := os.OpenFile(filepath.Join(folder, temp), os.O_WRONLY|os.O_CREATE|os.O_EXCL, private)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil && mode != private {
			_ = f.Chmod(mode) // where that is not possible it stays private
		}
		if bad, ok := errors.AsType[*fs.PathError](err); ok {
			return nil, fmt.Errorf("make a file in %s: %w", folder, bad.Err)
		}
		return f, err
	}
}
