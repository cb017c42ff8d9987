package interpreter

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// program writes a file with this mode below dir and returns its path.
func program(t *testing.T, dir, name string, mode os.FileMode) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), mode); err != nil {
		t.Fatal(err)
	}
	return file
}

// environment returns a lookup function over vars.
func environment(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

// errorText returns the text of err, or "" for nil, so that a table can name the error.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	program(t, dir, "both/python3", 0o755)
	program(t, dir, "both/python", 0o755)
	program(t, dir, "two/python", 0o755)
	program(t, dir, "noexec/python3", 0o644)
	program(t, dir, "venv/bin/python", 0o755)
	program(t, dir, "brokenvenv/bin/python", 0o644)
	if err := os.MkdirAll(filepath.Join(dir, "folder/python3"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "both/python3"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere/python3.11", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)

	// In want, err and env @ stands for dir.
	tests := []struct {
		name      string
		env       map[string]string
		want, err string
	}{
		{name: "python3 before python", env: map[string]string{"PATH": "@/both"}, want: "@/both/python3"},
		{name: "python3 anywhere before python", env: map[string]string{"PATH": "@/two:@/both"}, want: "@/both/python3"},
		{name: "python where there is no other", env: map[string]string{"PATH": "@/two"}, want: "@/two/python"},
		{
			name: "files that cannot be executed are passed over",
			env:  map[string]string{"PATH": "@/noexec:@/folder:@/both"},
			want: "@/both/python3",
		},
		{name: "relative directory in PATH", env: map[string]string{"PATH": "both"}, want: "@/both/python3"},
		{
			name: "virtual environment first",
			env:  map[string]string{"PATH": "@/both", "VIRTUAL_ENV": "@/venv"},
			want: "@/venv/bin/python",
		},
		{
			name: "broken virtual environment",
			env:  map[string]string{"PATH": "@/both", "VIRTUAL_ENV": "@/brokenvenv"},
			want: "@/both/python3",
		},
		{
			name: "PYTHON_EXEC wins",
			env:  map[string]string{"PATH": "@/both", "VIRTUAL_ENV": "@/venv", "PYTHON_EXEC": "@/two/python"},
			want: "@/two/python",
		},
		{name: "PYTHON_EXEC is a link", env: map[string]string{"PYTHON_EXEC": "@/link"}, want: "@/link"},
		{name: "PYTHON_EXEC relative", env: map[string]string{"PYTHON_EXEC": "./link"}, want: "@/link"},
		{
			name: "PYTHON_EXEC bare name",
			env:  map[string]string{"PATH": "@/both", "PYTHON_EXEC": "python"},
			want: "@/both/python",
		},
		{name: "PYTHON_EXEC empty", env: map[string]string{"PATH": "@/both", "PYTHON_EXEC": ""}, want: "@/both/python3"},
		{
			name: "PYTHON_EXEC missing",
			env:  map[string]string{"PATH": "@/both", "PYTHON_EXEC": "@/none"},
			err:  "PYTHON_EXEC=@/none: not an executable file: no such file or directory",
		},
		{
			name: "PYTHON_EXEC in an environment whose base is gone",
			env:  map[string]string{"PATH": "@/both", "PYTHON_EXEC": "@/dangling"},
			err: "PYTHON_EXEC=@/dangling: not an executable file: it is a link to /nowhere/python3.11: " +
				"no such file or directory; make the environment again",
		},
		{
			name: "PYTHON_EXEC not executable",
			env:  map[string]string{"PATH": "@/both", "PYTHON_EXEC": "@/noexec/python3"},
			err:  "PYTHON_EXEC=@/noexec/python3: not an executable file: permission denied",
		},
		{
			name: "PYTHON_EXEC is a folder",
			env:  map[string]string{"PATH": "@/both", "PYTHON_EXEC": "@/both"},
			err:  "PYTHON_EXEC=@/both: not an executable file: is a directory",
		},
		{
			name: "PYTHON_EXEC is an environment",
			env:  map[string]string{"PATH": "@/both", "PYTHON_EXEC": "@/venv"},
			err:  "PYTHON_EXEC=@/venv: not an executable file: is a directory; write PYTHON_EXEC=@/venv/bin/python",
		},
		{
			name: "PYTHON_EXEC bare name missing",
			env:  map[string]string{"PATH": "@/both", "PYTHON_EXEC": "python9"},
			err:  `PYTHON_EXEC=python9: no program "python9" in PATH (@/both)`,
		},
		{
			name: "nothing",
			env:  map[string]string{"PATH": "@/noexec", "VIRTUAL_ENV": "@/gone"},
			err: "find a python interpreter: tried @/gone/bin/python (no such file or directory), python3, python on PATH (@/noexec): " +
				"set PYTHON_EXEC to one, or use --no-python if the script is a program",
		},
	}
	expand := func(text string) string { return strings.ReplaceAll(text, "@", dir) }
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			env := map[string]string{}
			for name, value := range tt.env {
				env[name] = expand(value)
			}
			got, _, err := Find(environment(env))
			if diff := cmp.Diff(expand(tt.want), got); diff != "" {
				t.Errorf("Find (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(expand(tt.err), errorText(err)); diff != "" {
				t.Errorf("Find error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFindSource(t *testing.T) {
	dir := t.TempDir()
	python := program(t, dir, "bin/python", 0o755)
	for source, env := range map[string]map[string]string{
		"PYTHON_EXEC": {"PYTHON_EXEC": python, "VIRTUAL_ENV": dir}, "VIRTUAL_ENV": {"VIRTUAL_ENV": dir}, "PATH": {"PATH": filepath.Dir(python)},
	} {
		if path, got, err := Find(environment(env)); path != python || got != source || err != nil {
			t.Errorf("%v: %q by %q, %v", env, path, got, err)
		}
	}
}

// uv run --with makes an environment that has the project's packages and those that it adds, and names it in
// VIRTUAL_ENV. A program that it added runs with that environment, not with the one that holds the program.
func TestIsOverlay(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"over/pyvenv.cfg":   "home = /usr/bin\nuv = 0.13.9\nversion_info = 3.11.7\nextends-environment = /project/.venv\n",
		"simple/pyvenv.cfg": "home = /usr/bin\nuv = 0.13.9\nversion_info = 3.11.7\n", "none/bin/python": "",
	})
	for venv, want := range map[string]bool{"over": true, "simple": false, "none": false, "gone": false} {
		if got := isOverlay(filepath.Join(root, venv)); got != want {
			t.Errorf("%s: %v", venv, got)
		}
	}
	if isOverlay("") {
		t.Error("no environment is an overlay")
	}
}

// Only a program in the bin folder of a virtual environment uses that environment's interpreter.
func TestBesideProgram(t *testing.T) {
	venv := t.TempDir()
	launcher, python := filepath.Join(venv, "bin", "elasticrun"), filepath.Join(venv, "bin", "python")
	if err := os.Mkdir(filepath.Dir(launcher), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		file string
		mode os.FileMode
		// alone says that the file marks the environment as made for this program only
		alone bool
		want  string
	}{
		{file: python, mode: 0o755}, // some folder called bin
		{file: filepath.Join(venv, "pyvenv.cfg"), mode: 0o644, want: python},
		{file: filepath.Join(venv, "pipx_metadata.json"), mode: 0o644, alone: true},
		{file: filepath.Join(venv, "uv-receipt.toml"), mode: 0o644, alone: true},
		{file: python, mode: 0o755, want: python},
		{file: python, mode: 0o644}, // one that nobody can run
	} {
		if err := errors.Join(os.WriteFile(step.file, nil, step.mode), os.Chmod(step.file, step.mode)); err != nil {
			t.Fatal(err)
		}
		if got, ok := besideProgram(launcher); got != step.want || ok != (step.want != "") {
			t.Errorf("with %s: %q, %v", step.file, got, ok)
		}
		if step.alone {
			if err := os.Remove(step.file); err != nil {
				t.Fatal(err)
			}
		}
	}
}
