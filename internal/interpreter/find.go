package interpreter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/elasticrun/elasticrun/internal/lookpath"
	"github.com/elasticrun/elasticrun/internal/printable"
)

// Where Find found an interpreter.
const (
	SourceVariable   = "PYTHON_EXEC"
	SourceProgram    = "elasticrun's virtual environment"
	SourceVirtualEnv = "VIRTUAL_ENV"
	SourcePath       = "PATH"
)

// Find returns the absolute path of the interpreter that runs the training script. torchrun is a Python program and
// uses its own interpreter unless PYTHON_EXEC is set. Find tries, in this order:
//
//   - PYTHON_EXEC, a path or a name to be found on PATH. If it is set, nothing else is tried.
//   - the interpreter of the virtual environment in which this program is installed, which torchrun would use. An
//     environment that pipx or uv made for this program alone has no torch and is skipped. The environment of the
//     packages that uv run --with adds is skipped too: VIRTUAL_ENV is then another environment, with these packages and
//     the project's, and uv makes programs of Python packages use that one.
//   - bin/python in VIRTUAL_ENV
//   - python3 on PATH
//   - python on PATH
//
// source says which of these it is; it is one of the Source constants. An empty variable counts as unset. env has the
// signature of [os.LookupEnv]. The error is one line that lists what was tried.
func Find(env func(string) (string, bool)) (path, source string, err error) {
	if chosen, _ := env("PYTHON_EXEC"); chosen != "" {
		path, err = chosenPython(env, chosen)
		return path, SourceVariable, err
	}
	venv, _ := env("VIRTUAL_ENV")
	if own, err := os.Executable(); err == nil && !isOverlay(venv) {
		if found, ok := besideProgram(own); ok {
			return found, SourceProgram, nil
		}
	}
	var tried []string
	if venv != "" {
		candidate := filepath.Join(venv, "bin", "python")
		found, err := lookpath.Executable(candidate)
		if err == nil {
			return found, SourceVirtualEnv, nil
		}
		tried = append(tried, fmt.Sprintf("%s (%v)", candidate, whyNot(candidate, err)))
	}
	for _, name := range []string{"python3", "python"} {
		found, err := lookpath.Program(env, name)
		if err == nil {
			return found, SourcePath, nil
		}
		tried = append(tried, name)
	}
	return "", "", fmt.Errorf(
		"find a python interpreter: tried %s on PATH (%s): set PYTHON_EXEC to one, or use --no-python if the script is a "+
			"program",
		strings.Join(tried, ", "),
		lookpath.Path(env),
	)
}

// isOverlay reports whether the virtual environment is one of those that uv run --with makes for one command.
func isOverlay(venv string) bool {
	if venv == "" {
		return false
	}
	_, cfg := readVenv(filepath.Join(venv, "bin", "python"))
	return cfg.extends != ""
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
	found, err := lookpath.Executable(filepath.Join(bin, "python"))
	return found, err == nil
}

func chosenPython(env func(string) (string, bool), chosen string) (string, error) {
	if !strings.ContainsRune(chosen, filepath.Separator) {
		found, err := lookpath.Program(env, chosen)
		if err != nil {
			return "", fmt.Errorf("PYTHON_EXEC=%s: %w%s", chosen, err, insteadOf(chosen))
		}
		return found, nil
	}
	found, err := lookpath.Executable(chosen)
	if err != nil {
		return "", fmt.Errorf("PYTHON_EXEC=%s: not an executable file: %w%s", chosen, whyNot(chosen, err), insteadOf(chosen))
	}
	return found, nil
}

// insteadOf names the interpreter of an environment whose folder was given, or returns "".
func insteadOf(folder string) string {
	python, err := lookpath.Executable(filepath.Join(folder, "bin", "python"))
	if err != nil {
		return ""
	}
	return "; write PYTHON_EXEC=" + printable.ShellWord(python)
}

// whyNot says more about an interpreter that cannot be executed because of err, if more is known.
func whyNot(path string, err error) error {
	if target, linkErr := os.Readlink(path); linkErr == nil && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("it is a link to %s: %w; make the environment again", target, err)
	}
	return err
}
