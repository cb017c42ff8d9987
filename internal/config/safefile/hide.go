package safefile

import (
	"errors"
	"io/fs"
	"os"
)

// Hide makes an open file readable for its owner alone, before a secret is written to it: the shell of command > FILE
// has made it with the mode of any file. The mode is checked again, because some file systems ignore a change. Whoever
// has opened the file before could still read it, so such a file is refused. Other files than regular ones stay as they
// are.
func Hide(f *os.File) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if isDisclosed(info) {
		if err = f.Chmod(0o600); err == nil {
			info, err = f.Stat()
		}
		if err == nil && isDisclosed(info) {
			err = errors.New("its file system does not keep the mode")
		}
	}
	if err == nil && isOpenElsewhere(f) {
		err = errors.New("another process has opened it, perhaps while its mode was another one: remove it, and run " +
			"umask 077 before this command")
	}
	return err
}

func isDisclosed(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 }
