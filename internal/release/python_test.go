package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	t.Parallel()
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

var codeBlock = regexp.MustCompile("(?ms)^```(python|text)\n(.*?)^```$")

// TestPythonPage runs the examples of docs/python.md. A program's first line is its name. Its output follows.
func TestPythonPage(t *testing.T) {
	env, _ := pythonEnvironment(t)
	dir, last, ran := t.TempDir(), "", 0
	for _, block := range codeBlock.FindAllStringSubmatch(read(t, "../../docs", "python.md"), -1) {
		kind, text := block[1], block[2]
		if kind == "python" {
			first, _, _ := strings.Cut(text, "\n")
			last = strings.TrimPrefix(first, "# ")
			if err := os.WriteFile(filepath.Join(dir, last), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		cmd := exec.CommandContext(t.Context(), "python3", last)
		cmd.Env, cmd.Dir = env, dir
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%s: %v", last, err)
		}
		lines := func(s string) []string { return slices.Sorted(strings.SplitSeq(s, "\n")) } // workers write in any order
		if diff := cmp.Diff(lines(text), lines(string(out))); diff != "" {
			t.Errorf("%s prints (-page +output):\n%s", last, diff)
		}
		ran++
	}
	if ran < 3 {
		t.Errorf("only %d examples", ran)
	}
}

// TestPythonTorch launches a function that communicates by torch.
func TestPythonTorch(t *testing.T) {
	env, _ := pythonEnvironment(t, "PYTHON_EXEC="+testenv.Torch(t, "1.13"), "OMP_NUM_THREADS=1")
	cmd := exec.CommandContext(t.Context(), "python3", "-c",
		"import elasticrun, jobs; print(elasticrun.launch(jobs.reduce, (5,), nproc_per_node=2, log_level='error'))")
	cmd.Env, cmd.Dir = env, t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "{0: 11.0, 1: 11.0}\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
