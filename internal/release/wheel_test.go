package release

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// environment is a virtual environment for testing the wheel, and a folder with a script.
type environment struct {
	t    *testing.T
	venv string
	work string
	mark string
	env  []string
}

// worker is a script that checks that it is one of two workers.
const worker = `
import os, sys
assert os.environ["WORLD_SIZE"] == "2", os.environ["WORLD_SIZE"]
print("rank", os.environ["RANK"], "of 2 by", sys.prefix)
`

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	e := &environment{t: t, venv: testenv.Venv(t), work: t.TempDir(), mark: testenv.Mark()}
	var err error
	if e.venv, err = filepath.EvalSymlinks(e.venv); err != nil {
		t.Fatal(err)
	}
	e.script(worker)
	for _, v := range os.Environ() { // of the machine that the tests run on, which may have its own Python
		name, _, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, "PET_") && !strings.HasPrefix(name, "PYTHON") && !strings.HasPrefix(name, "PIP_") &&
			name != "VIRTUAL_ENV" &&
			name != "PATH" {
			e.env = append(e.env, v)
		}
	}
	e.env = append(
		e.env,
		e.mark,
		"PATH=/usr/bin:/bin",
		"PIP_NO_INDEX=1",
		"PIP_DISABLE_PIP_VERSION_CHECK=1",
		"PIP_NO_DEPS=1",
	)
	t.Cleanup(func() { testenv.NothingLeft(t, e.mark) })
	return e
}

// of returns the environment for a part of the test.
func (e *environment) of(t *testing.T) *environment {
	t.Helper()
	part := *e
	part.t, part.env = t, slices.Clip(e.env)
	return &part
}

// script writes train.py.
func (e *environment) script(text string) {
	e.t.Helper()
	if err := os.WriteFile(filepath.Join(e.work, "train.py"), []byte(text), 0o600); err != nil {
		e.t.Fatal(err)
	}
}

// run runs a program of the virtual environment and returns its output. The program must succeed.
func (e *environment) run(program string, args ...string) string {
	e.t.Helper()
	cmd := exec.CommandContext(e.t.Context(), filepath.Join(e.venv, "bin", program), args...)
	cmd.Dir, cmd.Env = e.work, e.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		e.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// files lists the files in the virtual environment.
func (e *environment) files() []string {
	e.t.Helper()
	var all []string
	err := filepath.WalkDir(e.venv, func(path string, _ fs.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return all
}

// The wheel puts elasticrun on PATH, and python -m elasticrun works. Both run scripts with the environment's own
// Python. Uninstalling leaves no file.
func testWheel(e *environment, dist string) {
	t := e.t
	t.Helper()
	before := e.files()
	e.run("python", "-m", "pip", "install", onlyFile(t, dist, "*.whl"))
	want := "elasticrun " + testVersion + " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
	for _, launch := range [][]string{{"elasticrun"}, {"python", "-m", "elasticrun"}} {
		if got := e.run(launch[0], append(launch[1:], "--version")...); got != want {
			t.Errorf("%v --version: %q, want %q", launch, got, want)
		}
		out := e.run(launch[0], append(launch[1:], "--nproc-per-node=2", "train.py")...)
		for _, line := range []string{"rank 0 of 2 by " + e.venv + "\n", "rank 1 of 2 by " + e.venv + "\n"} {
			if !strings.Contains(out, line) {
				t.Errorf("%v: no line %q in\n%s", launch, line, out)
			}
		}
	}
	versions := "import elasticrun, importlib.metadata as m; print(elasticrun.__version__, m.version('elasticrun'))"
	if got := e.run("python", "-c", versions); got != "1.2.3.dev4+gabcdef0 1.2.3.dev4+gabcdef0\n" {
		t.Errorf("__version__ and the metadata's version: %s", got)
	}
	out := e.run("python", "-c", "import elasticrun; elasticrun.launch('train.py', nproc_per_node=2)")
	if want := "rank 1 of 2 by " + e.venv + "\n"; !strings.Contains(out, want) {
		t.Errorf("elasticrun.launch: no line %q in\n%s", want, out)
	}
	if got := e.run("python", "-m", "pip", "check"); got != "No broken requirements found.\n" {
		t.Errorf("pip check: %s", got)
	}
	if got := e.run("python", "-m", "pip", "show", "elasticrun"); !strings.Contains(
		got,
		"Version: 1.2.3.dev4+gabcdef0\n",
	) ||
		!strings.Contains(got, "License: Apache-2.0\n") {
		t.Errorf("pip show: %s", got)
	}
	e.run("python", "-m", "pip", "uninstall", "--yes", "elasticrun")
	if diff := cmp.Diff(before, e.files()); diff != "" {
		t.Errorf("what is left of it (-before +after):\n%s", diff)
	}

	// pip install --target
	target := filepath.Join(e.work, "target")
	e.run("python", "-m", "pip", "install", "--target", target, onlyFile(t, dist, "*.whl"))
	e.env = append(e.env, "PYTHONPATH="+target)
	if got := e.run("python", "-m", "elasticrun", "--version"); got != want {
		t.Errorf("from --target: %q", got)
	}
	if err := os.Remove(filepath.Join(target, "bin", "elasticrun")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(e.venv, "bin", "python"), "-m", "elasticrun", "--version")
	cmd.Dir, cmd.Env = e.work, e.env
	if out, err := cmd.CombinedOutput(); err == nil || bytes.Count(out, []byte("\n")) != 1 ||
		!bytes.Contains(out, []byte("reinstall the package")) {
		t.Errorf("without the binary: %v\n%s", err, out)
	}
}
