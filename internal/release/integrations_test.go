package release

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// integrations is the environment of docs/integrations.md.
type integrations struct {
	t          *testing.T
	bin        string // programs of the packages
	elasticrun string
	env        []string
}

// TestIntegrations tries the claims of docs/integrations.md with the packages from PyPI.
func TestIntegrations(t *testing.T) {
	bin := testenv.Integrations(t)
	env, _ := pythonEnvironment(t, "PYTHON_EXEC="+bin+"/python", "PATH="+bin+":"+os.Getenv("PATH"), "OMP_NUM_THREADS=1",
		"HF_HUB_OFFLINE=1", "UV_OFFLINE=1", "UV_CACHE_DIR="+t.TempDir(), "PYDEVD_DISABLE_FILE_VALIDATION=1")
	i := &integrations{t: t, bin: bin, elasticrun: testenv.Binary(t), env: env}
	for _, name := range []string{"accelerate", "deepspeed", "lightning", "transformers"} {
		t.Run(name, func(t *testing.T) {
			out := i.run(t, i.elasticrun, "--nproc-per-node=2", example(t, "train_"+name+".py"))
			wantLines(t, out, name+": rank 0 of 2 trained", name+": rank 1 of 2 trained")
		})
	}
	t.Run("torchft", i.torchft)
	t.Run("debugpy", i.debugpy)
	t.Run("notebook", func(t *testing.T) {
		notebook, err := filepath.Abs("testdata/python/notebook.py")
		if err != nil {
			t.Fatal(err)
		}
		i.run(t, filepath.Join(i.bin, "python"), notebook)
	})
	t.Run("uv", i.uv)
	t.Run("types", i.types)
}

func example(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../examples/integrations", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// command returns a command in a folder of its own.
func (i *integrations) command(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env, cmd.Dir = i.env, t.TempDir()
	return cmd
}

// run returns the output of a program, which must succeed.
func (i *integrations) run(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := i.command(t, program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
	return string(out)
}

func wantLines(t *testing.T, out string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("no line %q in\n%s", line, out)
		}
	}
}

// torchft trains with two replica groups, each a job of its own, whose stores others reach by the host's name.
func (i *integrations) torchft(t *testing.T) {
	port := freePort(t)
	lighthouse := i.command(t, filepath.Join(i.bin, "torchft_lighthouse"), "--bind", "[::]:"+port, "--min_replicas", "2")
	if err := lighthouse.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lighthouse.Process.Kill(); _ = lighthouse.Wait() }()
	awaitPort(t, port)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	outputs := make(chan string, 2)
	for _, group := range []string{"0", "1"} {
		cmd := i.command(t, i.elasticrun, "--master-addr", host, example(t, "train_torchft.py"))
		cmd.Env = append(slices.Clip(cmd.Env), "TORCHFT_LIGHTHOUSE=http://localhost:"+port, "REPLICA_GROUP_ID="+group)
		go func() {
			out, _ := cmd.CombinedOutput()
			outputs <- string(out)
		}()
	}
	out := <-outputs + <-outputs
	wantLines(t, out, "torchft: group 0 of 2 trained to step 2", "torchft: group 1 of 2 trained to step 2")
}

// awaitPort waits for a listener, and does not connect: debugpy ends with its first client.
func awaitPort(t *testing.T, port string) {
	t.Helper()
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	listens := regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A `, number))
	testenv.Await(t, "a listener at port "+port, time.Minute, func() bool {
		four, _ := os.ReadFile("/proc/net/tcp")
		six, _ := os.ReadFile("/proc/net/tcp6")
		return listens.Match(append(four, six...))
	})
}

// debugpy stops both workers at a breakpoint, from a debugger that attaches to each.
func (i *integrations) debugpy(t *testing.T) {
	script := filepath.Join(t.TempDir(), "train.py")
	if err := os.WriteFile(script, []byte("import os\nprint('rank', os.environ['RANK'])\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	debugger, err := filepath.Abs("testdata/python/debugger.py")
	if err != nil {
		t.Fatal(err)
	}
	job := i.command(t, i.elasticrun, "--nproc-per-node=2", "-m", "debugpy",
		"--listen", "127.0.0.1:5678${local_rank}", "--wait-for-client", script)
	out := make(chan string, 1)
	go func() {
		text, _ := job.CombinedOutput()
		out <- string(text)
	}()
	for _, port := range []string{"56780", "56781"} {
		awaitPort(t, port)
		wantLines(t, i.run(t, filepath.Join(i.bin, "python"), debugger, port, script, "2"), "stopped at line 2")
	}
	wantLines(t, <-out, "rank 0", "rank 1")
}

// uv runs elasticrun from a project that depends on the wheel.
func (i *integrations) uv(t *testing.T) {
	wheel := onlyFile(t, makeRelease(t), "*.whl")
	project := t.TempDir()
	for name, text := range map[string]string{
		"pyproject.toml": "[project]\nname = \"mine\"\nversion = \"0\"\nrequires-python = \">=3.8\"\n", "train.py": worker,
		"with.py": "import elasticrun, os, sys\nprint('all packages:', os.environ['VIRTUAL_ENV'] == sys.prefix)\n",
	} {
		if err := os.WriteFile(filepath.Join(project, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	uv := func(args ...string) string {
		cmd := i.command(t, filepath.Join(i.bin, "uv"), args...)
		cmd.Dir = project
		cmd.Env = append(slices.Clip(cmd.Env), "PYTHON_EXEC=", "PYTHONPATH=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("uv %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	out := uv("run", "--python", "/usr/bin/python3", "--with", wheel, "elasticrun", "with.py")
	wantLines(t, out, "all packages: True")
	uv("add", "--python", "/usr/bin/python3", wheel)
	out = uv("run", "elasticrun", "--nproc-per-node=2", "train.py")
	wantLines(t, out, "rank 0 of 2 by "+project+"/.venv", "rank 1 of 2 by "+project+"/.venv")
}

// types checks the package, and what a type checker learns from it.
func (i *integrations) types(t *testing.T) {
	const program = `import elasticrun

def f(x: int) -> str:
    return str(x)

reveal_type(elasticrun.launch("train.py", ["--lr", 1], nproc_per_node=2, rdzv_conf={"join_timeout": 60}))
reveal_type(elasticrun.launch(f, (1,), nproc_per_node="gpu", min_uptime="5s", log_dir=None))
elasticrun.launch("train.py", nproc=2)
`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "typed.py"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := i.command(t, filepath.Join(i.bin, "python"), "-m", "mypy", "--strict", "--follow-imports=silent", "typed.py")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	for _, want := range []string{
		`typed.py:6: note: Revealed type is "elasticrun._launch.Result"`, `typed.py:7: note: Revealed type is "dict[int, str]"`,
		`typed.py:8: error: Unexpected keyword argument "nproc"`,
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q: %v\n%s", want, err, out)
		}
	}
	typed, err := filepath.Glob("python/_[a-eg-v]*.py") // not _flags and _worker
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-m", "mypy", "--strict", "--cache-dir", t.TempDir()}, typed...)
	check := exec.CommandContext(t.Context(), filepath.Join(i.bin, "python"), args...)
	check.Env = i.env
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("mypy: %v\n%s", err, out)
	}
}
