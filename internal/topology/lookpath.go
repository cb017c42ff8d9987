package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
)

// defaultPath is searched if PATH is not set, as in the C library.
const defaultPath = "/bin:/usr/bin"

// lookPath finds the program name in the directories of env's PATH and returns its absolute path.
// It does not resolve links, because the interpreter of a virtual environment finds its environment by the link's path. A
// relative directory in PATH counts, as in a shell.
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

// executable returns the absolute path of file if this user can execute it. The error is the reason alone.
func executable(file string) (string, error) {
	abs, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	// LookPath does not search for a path with a slash; it only checks the file.
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
