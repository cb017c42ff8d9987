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

// CheckFile checks whether [WriteFile] will be able to write the file at path: its folder must exist and accept a new
// file. It does not change the file at path.
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

// CheckFilePermissions is [CheckFile] without a trial: it checks permissions only, and makes no file.
func CheckFilePermissions(path string) error {
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

// WriteFile replaces the content of the file at path with data, in one step unless the file is a mount point. After an
// error the old content remains. WriteFile refuses a file that is not regular, because it would replace it. It also
// refuses a symbolic link, because in a folder that other users may write a link may lead anywhere. A new file gets
// mode 0600. A file that this user owns keeps its mode.
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
	if errors.Is(err, syscall.EBUSY) { // a file that a container runtime has mounted cannot be replaced
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

// private is the mode of a new file. Reports contain arguments of scripts and output of workers.
const private fs.FileMode = 0o600

// resolve returns the absolute path of the file and its future mode.
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

// fill writes data to f, syncs and closes it. The data must be on the disk before the file is renamed, so that a crash
// of the machine does not leave an empty file.
func fill(f *os.File, data []byte) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// create makes a temporary file beside path. The name of path may be as long as the file system allows, so the
// temporary name contains only a part of it.
func create(path string, mode fs.FileMode) (*os.File, error) {
	folder, name := filepath.Split(path)
	for {
		temp := fmt.Sprintf(".%s.%08x", name[:min(len(name), 64)], rand.Uint32())
		f, err := os.OpenFile(filepath.Join(folder, temp), os.O_WRONLY|os.O_CREATE|os.O_EXCL, private)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil && mode != private {
			_ = f.Chmod(mode) // if that fails, the file stays private
		}
		if bad, ok := errors.AsType[*fs.PathError](err); ok {
			return nil, fmt.Errorf("make a file in %s: %w", folder, bad.Err)
		}
		return f, err
	}
}
