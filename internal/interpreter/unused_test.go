package interpreter

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestUnused(t *testing.T) {
	t.Parallel()
	root := tree(t, base(map[string]string{
		"conda/bin/python": "\x7fELF", "conda/bin/python3": "->python", "gone/bin/python": "->/nowhere/python3",
	}))
	for _, tt := range []struct {
		name, path, source string
		env                map[string]string
		want               string
	}{
		{name: "no environment", path: "base/bin/python3", source: SourcePath},
		{
			name: "conda's is not on PATH", path: "base/bin/python3", source: SourcePath,
			env: map[string]string{"CONDA_PREFIX": "@/conda"}, want: "CONDA_PREFIX=@/conda",
		},
		{
			name: "conda's has no Python", path: "base/bin/python3", source: SourcePath,
			env: map[string]string{"CONDA_PREFIX": "@/nothing"},
		},
		{name: "conda's is on PATH", path: "conda/bin/python3", source: SourcePath, env: map[string]string{"CONDA_PREFIX": "@/conda/"}},
		{
			name: "a virtual environment in conda's", path: "env/bin/python", source: SourceVirtualEnv,
			env: map[string]string{"VIRTUAL_ENV": "@/env", "CONDA_PREFIX": "@/conda"},
		},
		{name: "PYTHON_EXEC", path: "base/bin/python3", source: SourceVariable, env: map[string]string{"VIRTUAL_ENV": "@/env"}},
		{
			name: "a virtual environment whose base is gone", path: "base/bin/python3", source: SourcePath,
			env:  map[string]string{"VIRTUAL_ENV": "@/gone", "CONDA_PREFIX": "@/conda"},
			want: "VIRTUAL_ENV=@/gone: it is a link to /nowhere/python3: no such file or directory; make the environment again",
		},
		{
			name: "elasticrun is in another environment", path: "env/bin/python", source: SourceProgram,
			env: map[string]string{"VIRTUAL_ENV": "@/conda"}, want: "VIRTUAL_ENV=@/conda",
		},
		{
			name: "elasticrun is in the environment", path: "env/bin/python", source: SourceProgram,
			env: map[string]string{"VIRTUAL_ENV": "@/env", "CONDA_PREFIX": "@/conda"},
		},
		{
			name: "elasticrun has an environment of its own beside conda's", path: "env/bin/python", source: SourceProgram,
			env: map[string]string{"CONDA_PREFIX": "@/conda"},
		},
	} {
		env := map[string]string{}
		for name, value := range tt.env {
			env[name] = strings.ReplaceAll(value, "@", root)
		}
		got := ""
		if u := Unused(filepath.Join(root, tt.path), tt.source, environment(env)); u != nil {
			if got = u.Variable + "=" + strings.TrimSuffix(u.Root, "/"); u.Err != nil {
				got += ": " + u.Err.Error()
			}
		}
		if want := strings.ReplaceAll(tt.want, "@", root); got != want {
			t.Errorf("%s: %q, want %q", tt.name, got, want)
		}
	}
}
