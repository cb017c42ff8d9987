package testenv

import (
	"os"
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

// Integrations returns the folder of programs of the environment that scripts/integrations.sh makes, with torch's
// official build and the packages of docs/integrations.md. Only make soak needs it.
func Integrations(t testing.TB) string {
	t.Helper()
	if !Whole(t) {
		t.Skip("make soak runs it")
	}
	Torch(t, Official)
	dir := filepath.Join(cache(), "venvs", "integrations")
	if _, err := os.Stat(filepath.Join(dir, ".elasticrun")); err != nil {
		Missing(t, "needs the packages of docs/integrations.md (scripts/integrations.sh): %v", err)
	}
	return filepath.Join(dir, "bin")
}
