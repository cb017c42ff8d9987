package interpreter

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree writes files below a new folder. A name that ends with / is a folder, a content that begins with -> a link, and
// a file in a bin folder can be executed.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		content = strings.ReplaceAll(content, "@/", root+"/")
		var err error
		if target, ok := strings.CutPrefix(content, "->"); ok {
			err = os.Symlink(target, path)
		} else if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o755)
		} else {
			syscall.ForkLock.RLock() // a process forked now would inherit the file: "text file busy"
			err = os.WriteFile(path, []byte(content), 0o644)
			syscall.ForkLock.RUnlock()
			if err == nil && filepath.Base(filepath.Dir(path)) == "bin" {
				err = os.Chmod(path, 0o755)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// base is a Python 3.11 without packages, and a virtual environment of it with torch.
func base(more map[string]string) map[string]string {
	files := map[string]string{
		"base/bin/python3.11":                                "\x7fELF",
		"base/bin/python3":                                   "->python3.11",
		"base/lib/python3.11/os.py":                          "",
		"base/lib/python3.11/json/tool.py":                   "",
		"base/lib/python3.11/site-packages/":                 "",
		"env/bin/python":                                     "->@/base/bin/python3.11",
		"env/pyvenv.cfg":                                     "home = @/base/bin\nversion_info = 3.11.7.final.0\n",
		"env/lib/python3.11/site-packages/torch/__init__.py": "",
		"env/lib/python3.11/site-packages/torch-2.9.0.dist-info/METADATA": "Metadata-Version: 2.4\nName: torch\nVersion: 2.9.0+cu128\n\nVersion: 7\n",
	}
	maps.Copy(files, more)
	return files
}

func TestInspect(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, python string
		files, env   map[string]string
		torch        Presence
		version      string // of Python
		release      string // of torch
		conda        bool
	}{
		{name: "a base without torch", python: "base/bin/python3", torch: Absent, version: "3.11"},
		{name: "a virtual environment", python: "env/bin/python", torch: Present, version: "3.11.7", release: "2.9.0+cu128"},
		{
			name: "torch of the base in an environment that has its own packages only", python: "other/bin/python",
			files: map[string]string{
				"other/bin/python": "->@/base/bin/python3", "other/pyvenv.cfg": "home = @/base/bin\ninclude-system-site-packages = false\n",
				"base/lib/python3.11/site-packages/torch/__init__.py": "",
			},
			torch: Absent, version: "3.11",
		},
		{
			name: "torch of the base in an environment that has the base's packages", python: "other/bin/python",
			files: map[string]string{
				"other/bin/python": "->@/base/bin/python3", "other/pyvenv.cfg": "home = @/base/bin\ninclude-system-site-packages = true\n",
				"base/lib/python3.11/site-packages/torch/__init__.py": "",
			},
			torch: Present, version: "3.11",
		},
		{
			name: "a copy in place of a link", python: "copy/bin/python",
			files: map[string]string{
				"copy/bin/python": "\x7fELF", "copy/pyvenv.cfg": "home = @/base/bin\n",
				"copy/lib/python3.11/site-packages/torch/__init__.py": "",
			},
			torch: Present, version: "3.11",
		},
		{
			name: "conda", python: "conda/bin/python",
			files: map[string]string{
				"conda/bin/python": "->python3.12", "conda/bin/python3.12": "\x7fELF", "conda/lib/python3.12/os.py": "",
				"conda/conda-meta/python-3.12.4-h5148396_1.json": "{}", "conda/conda-meta/python-dateutil-3.12.1-0.json": "{}",
				"conda/lib/python3.12/site-packages/torch/__init__.py":             "",
				"conda/lib/python3.12/site-packages/torch-2.4.1.egg-info/PKG-INFO": "Version: 2.4.1\n",
			},
			torch: Present, version: "3.12.4", release: "2.4.1", conda: true,
		},
		{
			name: "the user's own packages", python: "base/bin/python3", env: map[string]string{"HOME": "@/home"},
			files: map[string]string{"home/.local/lib/python3.11/site-packages/torch/__init__.py": ""},
			torch: Present, version: "3.11",
		},
		{
			name: "the user's own packages, switched off", python: "base/bin/python3",
			env:   map[string]string{"HOME": "@/home", "PYTHONNOUSERSITE": "1"},
			files: map[string]string{"home/.local/lib/python3.11/site-packages/torch/__init__.py": ""},
			torch: Absent, version: "3.11",
		},
		{
			name: "PYTHONPATH", python: "base/bin/python3", env: map[string]string{"PYTHONPATH": ":@/src"},
			files: map[string]string{"src/torch.py": ""}, torch: Present, version: "3.11",
		},
		{
			name: "an archive in PYTHONPATH", python: "base/bin/python3", env: map[string]string{"PYTHONPATH": "@/all.zip"},
			files: map[string]string{"all.zip": ""}, torch: Unknown, version: "3.11",
		},
		{name: "PYTHONHOME", python: "base/bin/python3", env: map[string]string{"PYTHONHOME": "/x"}, torch: Unknown, version: "3.11"},
		{
			name: "a .pth file that names a folder", python: "base/bin/python3",
			files: map[string]string{
				"base/lib/python3.11/site-packages/dev.pth": "# mine\nimport nothing\n@/src\n", "src/torch/__init__.py": "",
			},
			torch: Present, version: "3.11",
		},
		{
			name: "an editable installation with code", python: "base/bin/python3",
			files: map[string]string{"base/lib/python3.11/site-packages/__editable__.x-1.pth": "import __editable___x_finder\n"},
			torch: Unknown, version: "3.11",
		},
		{
			name: "an environment that extends another one", python: "over/bin/python",
			files: map[string]string{
				"over/bin/python": "->@/base/bin/python3.11", "over/pyvenv.cfg": "version_info = 3.11.7\nextends-environment = @/env\n",
			},
			torch: Present, version: "3.11.7", release: "2.9.0+cu128",
		},
		{
			name: "an environment whose code adds folders", python: "over/bin/python",
			files: map[string]string{
				"over/bin/python": "->@/base/bin/python3.11", "over/pyvenv.cfg": "version_info = 3.11.7\nextends-environment = @/base\n",
				"over/lib/python3.11/site-packages/_uv_ephemeral_overlay.pth": `import site; site.addsitedir("/cache")`,
			},
			torch: Unknown, version: "3.11.7",
		},
		{
			name: "an interpreter that is a script", python: "shims/bin/python",
			files: map[string]string{"shims/bin/python": "#!/bin/sh\n"}, torch: Unknown,
		},
		{
			name: "an environment whose base is gone", python: "gone/bin/python",
			files: map[string]string{"gone/bin/python": "->@/nowhere/python3.11", "gone/pyvenv.cfg": "version = 3.11.7\n"},
			torch: Unknown,
		},
		{
			name: "what the removal of a package left", python: "base/bin/python3",
			files: map[string]string{"base/lib/python3.11/site-packages/torch/__pycache__/x.pyc": ""},
			torch: Absent, version: "3.11",
		},
		{
			name: "two versions below one root", python: "two/bin/python3",
			files: map[string]string{
				"two/bin/python3": "\x7fELF", "two/lib/python3.11/os.py": "", "two/lib/python3.12/os.py": "",
			},
			torch: Unknown,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := tree(t, base(tt.files))
			env := map[string]string{}
			for name, value := range tt.env {
				env[name] = strings.ReplaceAll(value, "@", root)
			}
			in := Inspect(filepath.Join(root, tt.python), environment(env))
			if got := in.Has("torch"); got != tt.torch {
				t.Errorf("torch is %v, want %v; folders %q", got, tt.torch, in.Folders)
			}
			if in.Python != tt.version || in.Version("torch") != tt.release || in.Conda != tt.conda {
				t.Errorf("Python %q, torch %q, conda %v", in.Python, in.Version("torch"), in.Conda)
			}
		})
	}
}

// TestInspectReal compares the folders with those that real interpreters print.
func TestInspectReal(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Skip("needs python3: ", err)
	}
	python := strings.TrimSpace(string(out))
	dir := t.TempDir()
	for _, options := range []string{"", "--system-site-packages"} {
		venv := filepath.Join(dir, "venv"+options)
		cmd := exec.Command(python, append(strings.Fields("-m venv --without-pip "+options), venv)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("needs the module venv: %v: %s", err, out)
		}
	}
	for _, path := range []string{python, "/usr/bin/python3", filepath.Join(dir, "venv/bin/python"), filepath.Join(dir, "venv--system-site-packages/bin/python3")} {
		if !isFile(path) {
			continue
		}
		cmd := exec.Command(path, "-c", "import sys; print(sys.version.split()[0]); print(*sys.path[1:], sep='\\n')")
		cmd.Env = append(os.Environ(), "PYTHONPATH="+dir)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		version, list, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		env := func(name string) (string, bool) {
			if name == "PYTHONPATH" {
				return dir, true
			}
			return os.LookupEnv(name)
		}
		in := Inspect(path, env)
		var missing []string
		for folder := range strings.FieldsSeq(list) {
			if isDir(folder) && !slices.Contains(in.Folders, folder) {
				missing = append(missing, folder)
			}
		}
		if missing != nil || !strings.HasPrefix(version, in.Python) || in.Python == "" {
			t.Errorf("%s: Python %q of %q, missing %q in %q", path, in.Python, version, missing, in.Folders)
		}
		if in.Has("json") != Present || in.Has("_socket") == Unknown {
			t.Errorf("%s: json %v, _socket %v", path, in.Has("json"), in.Has("_socket"))
		}
	}
}

func TestFindModule(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"one/mod.py": "", "one/pkg/__init__.py": "", "one/pkg/sub.py": "", "one/run/__init__.py": "", "one/run/__main__.py": "",
		"one/ext.cpython-311-x86_64-linux-gnu.so": "", "one/ext2.abi3.so": "", "one/space/a.py": "", "two/space/b.py": "",
		"two/pkg/other.py": "", "two/data/x.csv": "", "odd[x]/far.cpython-311-darwin.so": "", "odd[x]/.hidden/": "",
	})
	folders := []string{filepath.Join(root, "one"), filepath.Join(root, "two"), filepath.Join(root, "odd[x]")}
	for module, want := range map[string]string{
		"mod": "one/mod.py", "pkg": "one/pkg", "pkg.sub": "one/pkg/sub.py", "pkg.other": "", "mod.sub": "",
		"ext": "one/ext.cpython-311-x86_64-linux-gnu.so", "ext2": "one/ext2.abi3.so", "space.a": "one/space/a.py",
		"space.b": "two/space/b.py", "data": "", "far": "odd[x]/far.cpython-311-darwin.so", "nosuch": "", "": "", "../one/mod": "",
		"pkg.": "", "train.py": "",
	} {
		if want != "" {
			want = filepath.Join(root, want)
		}
		if diff := cmp.Diff(want, FindModule(folders, module)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", module, diff)
		}
	}
	in := Installation{Folders: folders[1:], Certain: true}
	for module, want := range map[string]Presence{
		"pkg": Unknown, "run": Present, "run.nosuch": Unknown, "nosuch": Absent, "nosuch.sub": Absent, "pkg.sub": Present, "space.b": Present, "mod": Present,
	} {
		if got := in.Runs(module, folders[0]); got != want {
			t.Errorf("-m %s is %v, want %v", module, got, want)
		}
	}
}
