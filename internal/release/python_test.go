package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// pythonEnvironment returns the environment of a Python program that imports the package and finds the binary, as
// after pip install --target, and the mark of its processes.
func pythonEnvironment(t *testing.T, more ...string) (env []string, mark string) {
	t.Helper()
	lib, binary := t.TempDir(), testenv.Binary(t)
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(lib, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, target := range map[string]string{
		"elasticrun": filepath.Join(here, "python"), "bin/elasticrun": binary,
	} {
		if err := os.Symlink(target, filepath.Join(lib, path)); err != nil {
			t.Fatal(err)
		}
	}
	mark = testenv.Mark()
	env = append(os.Environ(), mark, "PYTHONDONTWRITEBYTECODE=1", "TMPDIR="+t.TempDir(), "PYTHON_EXEC=",
		"PYTHONPATH="+lib+":"+filepath.Join(here, "testdata/python"))
	t.Cleanup(func() { testenv.NothingLeft(t, mark) })
	return append(env, more...), mark
}

// TestPythonLaunch runs testdata/python/test_launch.py. -v lists its cases.
func TestPythonLaunch(t *testing.T) {
	for _, class := range []string{"Scripts", "Functions", "Refused", "Endings", "Package"} {
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			env, _ := pythonEnvironment(t)
			cmd := exec.CommandContext(t.Context(), "python3", "-m", "unittest", "-v", "test_launch."+class)
			cmd.Env, cmd.Dir = env, t.TempDir()
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}
