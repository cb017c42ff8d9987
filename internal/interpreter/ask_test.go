package interpreter

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/oneshot"
)

// realPython is what python3 on PATH really runs.
func realPython(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Skip("needs python3: ", err)
	}
	return strings.TrimSpace(string(out))
}

// planted are files beside a script that must not be executed.
var planted = []string{
	"json.py", "re.py", "importlib.py", "os.py", "linecache.py", "readline.py", "typing.py", "sitecustomize.py", "torch.py",
}

// TestAsk starts interpreters in a folder with modules that have the names of Python's own. None of them is executed,
// and torch is imported from where the user's PYTHONPATH says.
func TestAsk(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "executed")
	job := map[string]string{
		"src/torch/__init__.py": "import json, re, importlib, typing, linecache, logging\nprint('noise')\n__version__ = '2.9.0'\nfrom . import version\n",
		"src/torch/version.py":  "cuda = '12.8'\n",
		"work/":                 "",
		"shim/bin/python":       "#!/bin/sh\nexec " + realPython(t) + " \"$@\"\n",
	}
	for _, name := range planted {
		job["work/"+name] = "open(" + `"` + mark + `", "a").write(__name__)` + "\n__version__ = 'planted'\n"
	}
	root := tree(t, job)
	t.Chdir(filepath.Join(root, "work"))
	env := append(os.Environ(), "PYTHONPATH=:../src:", "PYTHONINSPECT=1", "PYTHONSAFEPATH=")
	pythons := []string{realPython(t), filepath.Join(root, "shim/bin/python")}
	if isFile("/usr/bin/python3") {
		pythons = append(pythons, "/usr/bin/python3")
	}
	for _, python := range pythons {
		got, err := Ask(t.Context(), python, Question{Env: env, Torch: true, Limit: time.Minute})
		if err != nil || got.Torch == nil {
			t.Errorf("%s: %+v, %v", python, got, err)
			continue
		}
		if diff := cmp.Diff(&Torch{Version: "2.9.0", Device: "CUDA 12.8"}, got.Torch); diff != "" {
			t.Errorf("%s (-want +got):\n%s", python, diff)
		}
		if !strings.HasPrefix(got.Python, "3.") || got.Folders[0] != filepath.Join(root, "src") || got.Executable == "" || !got.SameFiles || !got.Certain {
			t.Errorf("%s: %+v", python, got)
		}
		if executed, err := os.ReadFile(mark); err == nil {
			t.Errorf("%s executed %s of the working directory", python, executed)
		}
	}
	left, err := filepath.Glob("*/__pycache__")
	if err != nil || left != nil {
		t.Errorf("Ask wrote %q, %v", left, err)
	}
}

func TestAskProblems(t *testing.T) {
	t.Parallel()
	python := realPython(t)
	for _, tt := range []struct {
		name, torch, err string
		limit            time.Duration
		want             *Torch
	}{
		{name: "no torch", torch: "-", want: &Torch{Missing: true}},
		{
			name: "a library is missing", want: &Torch{Problem: "ImportError: libcudart.so.12: cannot open shared object file"},
			torch: `raise ImportError("libcudart.so.12: cannot open shared object file\nmore")`,
		},
		{
			name: "another module is missing", want: &Torch{Problem: "ModuleNotFoundError: No module named 'numpyy'"},
			torch: "import numpyy",
		},
		{name: "an error of its own", torch: "raise SystemExit(7)", want: &Torch{Problem: "SystemExit: 7"}},
		{name: "a crash", torch: "import os; os.kill(os.getpid(), 11)", err: "signal: segmentation fault"},
		{name: "an end", torch: "import os; os.write(2, b'one\\nwhy\\n'); os._exit(3)", err: "exit status 3 (why)"},
		{
			name: "much output", torch: "print('x' * 3000000)\n__version__ = '2.9.0'\n",
			want: &Torch{Version: "2.9.0", Device: "CPUs"},
		},
		{name: "no end", torch: "import signal; signal.pause()", limit: time.Second, err: "no end within 1s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{"src/torch/__init__.py": tt.torch}
			if tt.torch == "-" {
				files = map[string]string{"src/": ""}
			}
			if tt.limit == 0 {
				tt.limit = time.Minute
			}
			// With -S the interpreter does not find the torch of the machine.
			shim := tree(t, map[string]string{"bin/python": "#!/bin/sh\nexec " + python + " -S \"$@\"\n"})
			env := append(os.Environ(), "PYTHONPATH="+filepath.Join(tree(t, files), "src"))
			got, err := Ask(t.Context(), filepath.Join(shim, "bin/python"), Question{Env: env, Torch: true, Limit: tt.limit})
			if errorText(err) != tt.err || got.Python == "" && tt.limit > time.Second {
				t.Errorf("%+v, %q, want %q", got, errorText(err), tt.err)
			}
			if diff := cmp.Diff(tt.want, got.Torch); diff != "" {
				t.Errorf("torch (-want +got):\n%s", diff)
			}
		})
	}
}

// A program that writes without end does not fill the memory.
func TestOutput(t *testing.T) {
	t.Parallel()
	var o output
	part := []byte(strings.Repeat("x", oneshot.MaxHead/3))
	for range 30 {
		if n, err := o.Write(part); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	_, _ = o.Write([]byte("end"))
	if got := o.String(); len(got) > 2*oneshot.MaxHead || !strings.HasSuffix(got, "end") {
		t.Errorf("%d bytes are kept, with the end %q", len(got), got[len(got)-3:])
	}
}

// An interpreter that sees other files, such as one in a container, says nothing about the files here.
func TestParseAnswer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(tree(t, map[string]string{"os.py": ""}), "os.py")
	says := func(file, id string) string {
		return "noise\n" + answerMark + "python\x003.12.1\x00/bin/python\x00certain\x00" + file + "\x00" + id + "\x00" + dir + "\x00\n" +
			"more noise\n" + answerMark + "torch\x002.9.0\x00CPUs\x00\n"
	}
	torch := &Torch{Version: "2.9.0", Device: "CPUs"}
	for out, want := range map[string]Answer{
		says(file, identity(file)): {
			Python: "3.12.1", Executable: "/bin/python", SameFiles: true, Folders: []string{dir}, Certain: true, Torch: torch,
		},
		says(file, "1:2"):                     {Python: "3.12.1", Executable: "/bin/python", Torch: torch},
		says("/nowhere/os.py", "1:2"):         {Python: "3.12.1", Executable: "/bin/python", Torch: torch},
		"noise":                               {},
		answerMark + "python\x00":             {},
		answerMark + "problem\x00E: x\x00\nx": {Torch: &Torch{Problem: "E: x"}},
	} {
		if diff := cmp.Diff(want, parseAnswer(out)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", out, diff)
		}
	}
}

// A program that is not Python does not answer, whatever its exit status.
func TestAskAnotherProgram(t *testing.T) {
	t.Parallel()
	got, err := Ask(t.Context(), "/bin/true", Question{Limit: time.Minute})
	if err != nil || got.Python != "" {
		t.Errorf("%+v, %v", got, err)
	}
	gone := filepath.Join(tree(t, map[string]string{"bin/python": "#!/nowhere/bin/python -E\n"}), "bin/python")
	for path, want := range map[string]string{
		"/bin/false": "exit status 1", "/nowhere/python": "no such file or directory",
		gone: "its first line names /nowhere/bin/python: no such file or directory; make the environment again",
	} {
		if _, err := Ask(t.Context(), path, Question{Limit: time.Minute}); errorText(err) != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}
