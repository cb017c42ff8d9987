package testenv

import (
	"os/exec"
	"path/filepath"
	"testing"
)

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
