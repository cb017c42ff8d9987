// Package lookpath finds programs on the PATH of an environment that need not be this process's own.
//
// It executes nothing and keeps no state. All functions may be called concurrently.
package lookpath

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os/exec"
	"path/filepath"
)

// defaultPath is searched if PATH is not set, as in the C library.
const defaultPath = "/bin:/usr/bin"

// Program finds the program name in the directories of env's PATH and returns its absolute path. It does not resolve
// links, because the interpreter of a virtual environment finds its environment by the link's path. A relative
// directory in PATH counts, as in a shell. env has the signature of [os.LookupEnv].
func Program(env func(string) (string, bool), name string) (string, error) {
	for found := range All(env, name) {
		return found, nil
	}
	return "", fmt.Errorf("no program %q in PATH (%s)", name, Path(env))
}

// All yields every program with that name in the directories of env's PATH, in their order. Program returns the first.
func All(env func(string) (string, bool), name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, dir := range filepath.SplitList(Path(env)) {
			if found, err := Executable(filepath.Join(dir, name)); err == nil && !yield(found) {
				return
			}
		}
	}
}

// Path returns env's PATH, or the C library's default path if PATH is not set.
func Path(env func(string) (string, bool)) string {
	if list, ok := env("PATH"); ok {
		return list
	}
	return defaultPath
}

// Executable returns the absolute path of file if this user can execute it. The error is the reason alone, without the
// path.
func Executable(file string) (string, error) {
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
