package interpreter

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestAnother(t *testing.T) {
	t.Parallel()
	venv := func(at string, more ...string) map[string]string {
		files := map[string]string{
			at + "/bin/python":                                     "->@/base/bin/python3.11",
			at + "/pyvenv.cfg":                                     "home = @/base/bin\nversion = 3.11.7\n",
			at + "/lib/python3.11/site-packages/six.py":            "",
			at + "/lib/python3.11/site-packages/torch/__init__.py": "",
		}
		for _, name := range more {
			files[name] = ""
		}
		return files
	}
	for _, tt := range []struct {
		name, python, module, script string
		files, env                   map[string]string
		want                         string
	}{
		{name: "beside the script", script: "job/train.py", files: venv("job/.venv"), want: "PYTHON_EXEC=@/job/.venv/bin/python elasticrun"},
		{name: "venv beside the script", script: "job/train.py", files: venv("job/venv"), want: "PYTHON_EXEC=@/job/venv/bin/python elasticrun"},
		{name: "in the working directory", script: "/train.py", files: venv("work/.venv"), want: "PYTHON_EXEC=@/work/.venv/bin/python elasticrun"},
		{
			name: "in the repository's root", script: "work/a/b/train.py", files: venv("work/.venv", "work/.git/HEAD"),
			want: "PYTHON_EXEC=@/work/.venv/bin/python elasticrun",
		},
		{name: "above the repository", script: "work/a/train.py", files: venv(".venv", "work/.git/HEAD")},
		{name: "above, without a repository", script: "work/a/train.py", files: venv(".venv")},
		{name: "one that lacks the module too", script: "job/train.py", module: "jax", files: venv("job/.venv")},
		{name: "the interpreter of the run itself", python: "work/.venv/bin/python", script: "work/train.py", files: venv("work/.venv")},
		{name: "a project of uv", script: "work/train.py", files: venv("work/.venv", "work/uv.lock"), want: "uv run elasticrun"},
		{
			name: "a project of uv, with PYTHON_EXEC", script: "work/train.py", files: venv("work/.venv", "work/uv.lock"),
			env: map[string]string{"PYTHON_EXEC": "@/base/bin/python3"}, want: "PYTHON_EXEC=@/work/.venv/bin/python elasticrun",
		},
		{
			name: "a project of uv elsewhere", script: "job/train.py", files: venv("job/.venv", "job/uv.lock"),
			want: "PYTHON_EXEC=@/job/.venv/bin/python elasticrun",
		},
		{
			name: "an active environment that the run does not use", script: "job/train.py", files: venv("active"),
			env: map[string]string{"VIRTUAL_ENV": "@/active"}, want: "PYTHON_EXEC=@/active/bin/python elasticrun",
		},
		{
			name: "python3 on PATH", script: "job/train.py", files: venv("active"), env: map[string]string{"PATH": "@/active/bin"},
			want: "PYTHON_EXEC=@/active/bin/python elasticrun",
		},
		{
			name: "behind the interpreter of the run on PATH", python: "work/first/python3", script: "job/train.py",
			files: map[string]string{
				"work/first/python3": "->@/base/bin/python3.11", "second/python3": "->@/base/bin/python3.11",
				"pyvenv.cfg": "home = @/base/bin\nversion = 3.11.7\n",
				"lib/python3.11/site-packages/torch/__init__.py": "",
			},
			env:  map[string]string{"PATH": "@/work/first:@/second"},
			want: "PYTHON_EXEC=@/second/python3 elasticrun",
		},
		{
			name: "a path with a space", script: "my job/train.py", files: venv("my job/.venv"),
			want: "PYTHON_EXEC='@/my job/.venv/bin/python' elasticrun",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			files := base(tt.files)
			files["work/"] = ""
			root := tree(t, files)
			env := map[string]string{"PATH": "/nowhere"}
			for name, value := range tt.env {
				env[name] = strings.ReplaceAll(value, "@", root)
			}
			s := Search{
				Python: filepath.Join(root, "base/bin/python3"), Module: "torch", WorkDir: filepath.Join(root, "work"),
				Script: filepath.Join(root, tt.script), Env: environment(env),
			}
			if tt.python != "" {
				s.Python = filepath.Join(root, tt.python)
			}
			if tt.module != "" {
				s.Module = tt.module
			}
			got := ""
			if other, ok := Another(s); ok {
				got = other.Command()
			}
			if want := strings.ReplaceAll(tt.want, "@", root); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}
