package testenv

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Python returns a python3 for workers without torch: the system's, which all users can execute, or else the one that
// python3 on PATH runs. Version managers put scripts on PATH that take longer than Python itself.
func Python(t testing.TB) string {
	t.Helper()
	python, err := findPython()
	if err != nil {
		Missing(t, "needs python3: %v", err)
	}
	return python
}

// findPython finds Python's interpreter once in a process.
var findPython = sync.OnceValues(func() (string, error) {
	const system = "/usr/bin/python3"
	if _, err := os.Stat(system); err == nil {
		return system, nil
	}
	const program = "import os, sys; print(os.path.realpath(sys.executable))"
	out, err := exec.CommandContext(context.Background(), "python3", "-c", program).Output()
	return strings.TrimSpace(string(out)), err
})

// Venv returns the path of a new virtual environment of Debian's Python, with pip. The test's cleanup removes it.
func Venv(t testing.TB) string {
	t.Helper()
	const python = "/usr/bin/python3"
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import ensurepip, venv").CombinedOutput(); err != nil {
		Missing(t, "needs %s with venv (apt-get install python3-venv): %v %s", python, err, out)
	}
	dir := filepath.Join(t.TempDir(), "venv")
	if out, err := exec.CommandContext(t.Context(), python, "-m", "venv", dir).CombinedOutput(); err != nil {
		t.Fatalf("%s -m venv: %v\n%s", python, err, out)
	}
	return dir
}

// Integrations returns the folder of programs of the environment that scripts/integrations.sh makes, with torch's
// official build and the packages of docs/integrations.md. Only make soak needs it.
func Integrations(t testing.TB) string {
	t.Helper()
	InSoak(t)
	Torch(t, Official)
	dir := filepath.Join(cache(), "venvs", "integrations")
	if _, err := os.Stat(filepath.Join(dir, ".elasticrun")); err != nil {
		Missing(t, "needs the packages of docs/integrations.md (scripts/integrations.sh): %v", err)
	}
	return filepath.Join(dir, "bin")
}

// withoutPySpy is a variable that is 1 where tests do without py-spy.
const withoutPySpy = "ELASTICRUN_WITHOUT_PY_SPY"

// PySpy returns the path of py-spy, which scripts/py-spy.sh installs.
func PySpy(t testing.TB) string {
	t.Helper()
	program := filepath.Join(cache(), "bin", "py-spy")
	if out, err := exec.CommandContext(t.Context(), program, "--version").CombinedOutput(); err != nil {
		if os.Getenv(withoutPySpy) == "1" {
			t.Skipf("needs py-spy, and %s=1", withoutPySpy)
		}
		Missing(t, "needs py-spy (scripts/py-spy.sh): %v %s", err, out)
	}
	return program
}

// Pythons returns the paths of the CPython interpreters on PATH and of pyenv, without links, whose versions pkg/pystack
// reads.
func Pythons(t testing.TB) []string {
	t.Helper()
	root := os.Getenv("PYENV_ROOT")
	if home, err := os.UserHomeDir(); root == "" && err == nil {
		root = filepath.Join(home, ".pyenv")
	}
	versions, err := filepath.Glob(filepath.Join(root, "versions", "*", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`^python3\.(9|1[0-5])$`)
	var all []string
	for _, folder := range slices.Concat(filepath.SplitList(os.Getenv("PATH")), versions) {
		entries, _ := os.ReadDir(folder) // PATH may name folders that do not exist
		for _, e := range entries {
			path, err := filepath.EvalSymlinks(filepath.Join(folder, e.Name()))
			if name.MatchString(e.Name()) && err == nil && !slices.Contains(all, path) && isELF(path) {
				all = append(all, path)
			}
		}
	}
	return all
}

// isELF reports whether a file is a program and no script, such as those with which pyenv chooses a version.
func isELF(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	magic := make([]byte, 4)
	_, err = f.Read(magic)
	return err == nil && string(magic) == "\x7fELF"
}
