package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
)

// defaultPath is searched when PATH is not set at all, as the C library does.
const defaultPath = "/bin:/usr/bin"

// lookPath finds the program name in the directories of env's PATH and returns its absolute path.
// Links are not resolved: a virtual environment's interpreter knows itself by the link's place. A
// relative directory in PATH counts, as in a shell; it is the user's own choice.
func lookPath(env func(string) (string, bool), name string) (string, error) {
	for _, dir := range filepath.SplitList(searchPath(env)) {
		if found, err := executable(filepath.Join(dir, name)); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("no program %q in PATH (%s)", name, searchPath(env))
}

func searchPath(env func(string) (string, bool)) string {
	if list, ok := env("PATH"); ok {
		return list
	}
	return defaultPath
}

// executable returns the absolute form of file if this user can execute it, else the bare reason.
func executable(file string) (string, error) {
	abs, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	// Given a path with a slash LookPath searches nowhere: it checks that one file.
	_, err = exec.LookPath(abs)
	if e, ok := errors.AsType[*exec.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	if err != nil {
		return "", err
	}
	return abs, nil
}
