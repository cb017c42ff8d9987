package records

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// install writes the files of an installation of Python at dir, with these files of modules, and returns its
// interpreter.
func install(t *testing.T, dir string, modules ...string) string {
	t.Helper()
	files := map[string]string{"bin/python3": "", "pyvenv.cfg": "home = " + dir + "/bin\n", "lib/python3.11/os.py": ""}
	for _, name := range modules {
		files["lib/python3.11/site-packages/"+name] = ""
	}
	for name, content := range files {
		write(t, filepath.Join(dir, name), content)
	}
	if err := os.Symlink("python3", filepath.Join(dir, "bin/python")); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "bin/python3")
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil { //nolint:gosec // an interpreter is executable
		t.Fatal(err)
	}
}

// TestHint checks the advice after a failure. In the texts @ stands for a folder with a job and two interpreters: base,
// which the job uses, and job/.venv, which has torch.
func TestHint(t *testing.T) {
	const notFound = "ModuleNotFoundError: No module named "
	for _, tt := range []struct {
		name      string
		cfg       config.Config // the script is job/train.py by default
		root      report.Failure
		env, want string // env is a variable
	}{
		{name: "nothing known", root: report.Failure{Summary: "ValueError: no data"}},
		{
			name: "a module that another interpreter has", root: report.Failure{Summary: notFound + "'torch'"},
			want: "@/base/bin/python3 (from PYTHON_EXEC) has no module torch; another interpreter has it: " +
				"run PYTHON_EXEC=@/job/.venv/bin/python elasticrun ...",
		},
		{
			name: "a module that none has", root: report.Failure{Summary: notFound + "'nosuchmodule'"},
			want: "@/base/bin/python3 (from PYTHON_EXEC) has no module nosuchmodule; install it there, activate the environment that " +
				"has it, or set PYTHON_EXEC to its python",
		},
		{
			name: "a module beside the launcher", root: report.Failure{Summary: notFound + "'mymodel'"},
			want: "@/mymodel.py is there, but Python searches the script's folder, not the working directory: " +
				"run PYTHONPATH=@ elasticrun ...",
		},
		{
			name: "a package whose version is too old", root: report.Failure{Summary: notFound + "'numpy.new'"},
			want: "@/base/bin/python3 has numpy 1.2, which has no module new: install the version that the script needs",
		},
		{name: "a package of the user's", root: report.Failure{Summary: notFound + "'local.new'"}},
		{
			name: "a file that hides a package", root: report.Failure{Summary: notFound + "'six.moves'; 'six' is not a package"},
			want: "@/job/six.py hides the package six: rename the file",
		},
		{name: "no package", root: report.Failure{Summary: notFound + "'json.x'; 'json' is not a package"}},
		{
			name: "a package with -m", cfg: config.Config{Script: "pkg", Module: true},
			root: report.Failure{Summary: "python3: No module named pkg.__main__; 'pkg' is a package and cannot be directly executed"},
			want: "pkg is a package: name the module in it that is to run, as -m pkg.MODULE",
		},
		{
			name: "a path with -m", cfg: config.Config{Script: "pkg/module", Module: true},
			root: report.Failure{Summary: "python3: No module named pkg/module"},
		},
		{
			name: "a program's words about a module", cfg: config.Config{Script: "true", NoPython: true},
			root: report.Failure{Summary: notFound + "'torch'"},
		},
		{
			name: "a Python script as a program", cfg: config.Config{Script: "job/six.py", NoPython: true},
			root: report.Failure{Summary: "could not be executed: job/six.py has no execute permission"},
			want: "leave --no-python out to run the file with Python",
		},
		{
			name: "a Python script as a program on PATH", cfg: config.Config{Script: "mymodel.py", NoPython: true},
			root: report.Failure{Summary: "could not be executed: mymodel.py is in no folder of PATH"},
			want: "leave --no-python out to run the file with Python",
		},
		{
			name: "a program with the name of a Python script", cfg: config.Config{Script: "nowhere.py", NoPython: true},
			root: report.Failure{Summary: "could not be executed: nowhere.py is in no folder of PATH"},
		},
		{
			name: "a Python script as a program, which ran", cfg: config.Config{Script: "job/six.py", NoPython: true},
			root: report.Failure{Summary: "exited with code 127: a command was not found"},
		},
		{
			name: "a crash", root: report.Failure{Summary: "killed by signal 11 (SIGSEGV)", Signal: "SIGSEGV"},
			want: "set PYTHONFAULTHANDLER=1 to see where Python crashed",
		},
		{
			name: "a crash that Python has explained", env: "PYTHONFAULTHANDLER=1",
			root: report.Failure{Summary: "killed by signal 11 (SIGSEGV)", Signal: "SIGSEGV"},
		},
		{
			name: "a crash of a script with a fault handler", root: report.Failure{
				Summary: "killed by signal 11 (SIGSEGV)", Signal: "SIGSEGV",
				Text: "last lines of stderr:\n  Fatal Python error: Segmentation fault",
			},
		},
		{
			name: "a program's crash", cfg: config.Config{Script: "true", NoPython: true},
			root: report.Failure{Summary: "killed by signal 11 (SIGSEGV)", Signal: "SIGSEGV"},
		},
		{
			name: "SIGKILL", root: report.Failure{Summary: "killed by signal 9 (SIGKILL)" + evidence.NotOOM, Signal: "SIGKILL"},
			want: "find out who sent SIGKILL: a person, a script, systemd-oomd or earlyoom; a limit of Slurm or the container",
		},
		{
			name: "SIGKILL in Slurm", env: "SLURM_JOB_ID=4711",
			root: report.Failure{Summary: "killed by signal 9 (SIGKILL)" + evidence.NotOOM, Signal: "SIGKILL"},
			want: "find out who sent SIGKILL: a person, a script, systemd-oomd or earlyoom; a limit of Slurm or the container; " +
				"run sacct -j 4711 to see whether it was Slurm",
		},
		{
			name: "SIGKILL, perhaps of the OOM killer",
			root: report.Failure{Summary: "killed by signal 9 (SIGKILL)", Signal: "SIGKILL"},
		},
		{
			name: "a library", env: "LD_LIBRARY_PATH=/opt/cuda",
			root: report.Failure{Summary: "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory"},
			want: "install the package that has libcudart.so.12, or add its folder to LD_LIBRARY_PATH (LD_LIBRARY_PATH is /opt/cuda)",
		},
		{
			name: "a program's library", cfg: config.Config{Script: "true", NoPython: true},
			root: report.Failure{Summary: "./train: error while loading shared libraries: libmpi.so.40: cannot open shared object file: No such file or directory"},
			want: "install the package that has libmpi.so.40, or add its folder to LD_LIBRARY_PATH (LD_LIBRARY_PATH is not set)",
		},
		{
			name: "CRLF", cfg: config.Config{Script: "true", NoPython: true},
			root: report.Failure{Summary: `/usr/bin/env: ‘sh\r’: No such file or directory`},
			want: `a script's lines end in CRLF: run sed -i 's/\r$//' on it`,
		},
		{
			name: "torch without libuv",
			root: report.Failure{
				Summary: "RuntimeError: use_libuv was requested but PyTorch was build without libuv support",
			},
			want: "this torch was built without libuv: set USE_LIBUV=0 and TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
		},
		{
			name: "torch without CUDA", root: report.Failure{Summary: "AssertionError: Torch not compiled with CUDA enabled"},
			want: "this torch was built without CUDA: install a build with CUDA",
		},
		{
			name: "no GPU", root: report.Failure{Summary: "RuntimeError: No CUDA GPUs are available"},
			want: "check with nvidia-smi -L and CUDA_VISIBLE_DEVICES; a container needs --gpus all (Docker) or --nv (Apptainer)",
		},
		{
			name: "hidden GPUs", env: "CUDA_VISIBLE_DEVICES=",
			root: report.Failure{Summary: "RuntimeError: No CUDA GPUs are available"},
			want: `CUDA_VISIBLE_DEVICES="" hides every GPU: unset it`,
		},
		{
			name: "a port", root: report.Failure{Summary: "OSError: [Errno 98] Address already in use"},
			want: "run ss -ltnp to see which program has the port",
		},
		{
			name: "torch's port", root: report.Failure{Summary: "torch.distributed.DistNetworkError: The server socket has failed to listen on " +
				"any local network address. port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use"},
			want: "run ss -ltnp 'sport = :29500' to see which program has the port",
		},
		{
			name: "a full disk", root: report.Failure{Summary: "OSError: [Errno 28] No space left on device: 'ckpt 1/x.pt'"},
			want: "make room: run df '@/ckpt 1' and df -i '@/ckpt 1' to see what is full",
		},
		{
			name: "a full disk of no name", root: report.Failure{Summary: "OSError: [Errno 28] No space left on device"},
			want: "make room: run df and df -i to see which file system is full",
		},
		{
			name: "full shared memory",
			root: report.Failure{Summary: "RuntimeError: unable to write to file </torch_7_1>: No space left on device (28)"},
			want: "/dev/shm is full: make it larger (docker run --shm-size), or use fewer DataLoader workers",
		},
		{
			name: "no permission", root: report.Failure{Summary: "PermissionError: [Errno 13] Permission denied: '/data/x.bin'"},
			want: fmt.Sprintf("run namei -l /data/x.bin to see which folder or file refuses user %d", os.Geteuid()),
		},
		{name: "no permission for something", root: report.Failure{Summary: "PermissionError: [Errno 13] Permission denied"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			python := install(t, filepath.Join(dir, "base"), "six/__init__.py", "numpy/__init__.py", "numpy-1.2.dist-info/METADATA")
			write(t, filepath.Join(dir, "base/lib/python3.11/site-packages/numpy-1.2.dist-info/METADATA"), "Version: 1.2\n")
			install(t, filepath.Join(dir, "job/.venv"), "torch/__init__.py")
			for _, name := range []string{"mymodel.py", "job/six.py", "job/local/__init__.py"} {
				write(t, filepath.Join(dir, name), "")
			}
			if tt.cfg.Script == "" {
				tt.cfg.Script = "job/train.py"
			}
			key, value, _ := strings.Cut(tt.env, "=")
			got := jobOf(&tt.cfg, func(name string) (string, bool) {
				switch name {
				case "PYTHON_EXEC":
					return python, true
				case key:
					return value, true
				}
				return "", false
			}).hint(&tt.root)
			if want := strings.ReplaceAll(tt.want, "@", dir); got != want {
				t.Errorf("%q\nwant %q", got, want)
			}
		})
	}
}
