package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Python returns the absolute path of the interpreter that runs the training script. torchrun is a Python program and
// uses its own interpreter unless PYTHON_EXEC is set. Python tries, in this order:
//
//   - PYTHON_EXEC, a path or a name to be found on PATH. If it is set, nothing else is tried.
//   - the interpreter of the virtual environment in which this program is installed, which torchrun would use. An
//     environment that pipx or uv made for this program alone has no torch and is skipped.
//   - bin/python in VIRTUAL_ENV
//   - python3 on PATH
//   - python on PATH
//
// source says which of these it is. An empty variable counts as unset. env has the signature of [os.LookupEnv]. The
// error is one line that lists what was tried.
func Python(env func(string) (string, bool)) (path, source string, err error) {
	if chosen, _ := env("PYTHON_EXEC"); chosen != "" {
		path, err = chosenPython(env, chosen)
		return path, "PYTHON_EXEC", err
	}
	if own, err := os.Executable(); err == nil {
		if found, ok := besideProgram(own); ok {
			return found, "elasticrun's virtual environment", nil
		}
	}
	var tried []string
	if venv, _ := env("VIRTUAL_ENV"); venv != "" {
		candidate := filepath.Join(venv, "bin", "python")
		found, err := executable(candidate)
		if err == nil {
			return found, "VIRTUAL_ENV", nil
		}
		tried = append(tried, fmt.Sprintf("%s (%v)", candidate, err))
	}
	for _, name := range []string{"python3", "python"} {
		found, err := lookPath(env, name)
		if err == nil {
			return found, "PATH", nil
		}
		tried = append(tried, name)
	}
	return "", "", fmt.Errorf(
		"find a python interpreter: tried %s on PATH (%s): set PYTHON_EXEC to one, or use --no-python if the script is a "+
			"program",
		strings.Join(tried, ", "),
		searchPath(env),
	)
}

// besideProgram returns the interpreter of the virtual environment whose bin folder contains the program, unless pipx
// or uv made the environment for programs only.
func besideProgram(program string) (string, bool) {
	bin := filepath.Dir(program)
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(filepath.Dir(bin), name))
		return err == nil
	}
	if !has("pyvenv.cfg") || has("pipx_metadata.json") || has("uv-receipt.toml") {
		return "", false
	}
	found, err := executable(filepath.Join(bin, "python"))
	return found, err == nil
}

func chosenPython(env func(string) (string, bool), chosen string) (string, error) {
	if !strings.ContainsRune(chosen, filepath.Separator) {
		found, err := lookPath(env, chosen)
		if err != nil {
			return "", fmt.Errorf("use PYTHON_EXEC=%s: %w", chosen, err)
		}
		return found, nil
	}
	found, err := executable(chosen)
	if err != nil {
		return "", fmt.Errorf("use PYTHON_EXEC=%s: not an executable file: %w", chosen, err)
	}
	return found, nil
}

// defaultPath is searched if PATH is not set, as in the C library.
const defaultPath = "/bin:/usr/bin"

// lookPath finds the program name in the directories of env's PATH and returns its absolute path. It does not resolve
// links, because the interpreter of a virtual environment finds its environment by the link's path. A relative
// directory in PATH counts, as in a shell.
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
