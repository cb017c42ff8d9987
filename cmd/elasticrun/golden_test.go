package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/report"
)

var update = flag.Bool("update", false, "rewrite testdata/golden")

// golden is a launch of testdata/workers/fail.py with a report.
type golden struct {
	t      *testing.T
	dir    string
	mark   string
	cmd    *exec.Cmd
	out    *bufio.Reader
	stderr strings.Builder

	unstable []string // text that differs in each run, and its replacement
}

// startGolden starts the script in a new folder, which is its working directory.
func startGolden(t *testing.T, args ...string) *golden {
	t.Helper()
	return startGoldenBy(t, nil, args...)
}

// startGoldenBy starts the launcher by a command, which executes its last arguments.
func startGoldenBy(t *testing.T, by []string, args ...string) *golden {
	t.Helper()
	python := testenv.Python(t)
	script, err := os.ReadFile("../../testdata/workers/fail.py")
	if err != nil {
		t.Fatal(err)
	}
	g := &golden{t: t, dir: t.TempDir(), mark: testenv.Mark(), unstable: []string{python, "PYTHON"}}
	if err := os.WriteFile(filepath.Join(g.dir, "fail.py"), script, 0o600); err != nil {
		t.Fatal(err)
	}
	argv := slices.Concat(by, []string{testenv.Binary(t), "--log-level=error", "--report=report.json"}, args)
	g.cmd = exec.Command(argv[0], argv[1:]...)
	g.cmd.Dir = g.dir
	g.cmd.Env = append(os.Environ(), g.mark, "PYTHON_EXEC="+python, "TMPDIR="+g.dir, "OMP_NUM_THREADS=1")
	g.cmd.Stderr = &g.stderr
	g.out = bufio.NewReader(testenv.StartWithOutput(t, g.cmd))
	t.Cleanup(func() { // after a test that failed
		_ = g.cmd.Process.Kill()
		testenv.NothingLeft(t, g.mark)
	})
	return g
}

// ready waits for a worker that waits, and returns its pid.
func (g *golden) ready() int {
	g.t.Helper()
	line, err := g.out.ReadString('\n')
	if err != nil {
		g.t.Fatalf("no worker is ready: %v\n%s", err, &g.stderr)
	}
	pid, err := strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(line), "ready "))
	if err != nil {
		g.t.Fatalf("line %q", line)
	}
	return pid
}

// end waits for the launcher and returns its report.
func (g *golden) end() (report.Report, string) {
	g.t.Helper()
	_, _ = io.Copy(io.Discard, g.out)
	_ = g.cmd.Wait()
	testenv.NothingLeft(g.t, g.mark)
	data, err := os.ReadFile(filepath.Join(g.dir, "report.json"))
	if err != nil {
		g.t.Fatalf("%v\n%s", err, &g.stderr)
	}
	var r report.Report
	if err := json.Unmarshal(data, &r); err != nil {
		g.t.Fatalf("%v: %s", err, data)
	}
	if code := testenv.ExitCode(g.cmd.ProcessState); r.ExitCode != code {
		g.t.Errorf("exit code %d, and the report says %d", code, r.ExitCode)
	}
	return r, string(data)
}

// compare checks what the launcher said, from its report on, and the report against NAME.txt and NAME.json. Others are
// launches on other nodes.
func (g *golden) compare(name, data string, others ...*golden) {
	g.t.Helper()
	for _, node := range append(others, g) {
		dir, err := filepath.EvalSymlinks(node.dir)
		if err != nil {
			g.t.Fatal(err)
		}
		g.unstable = append(g.unstable, dir, "DIR", node.dir, "DIR")
	}
	host, err := os.Hostname()
	if err != nil {
		g.t.Fatal(err)
	}
	g.unstable = append(g.unstable, " on "+host, " on HOST")
	text := g.stderr.String()
	if i := strings.Index(text, "===="); i >= 0 {
		text = text[i:]
	}
	g.matches(name+".txt", text)
	g.matches(name+".json", data)
}

// unstable is what differs from run to run, and what stands in its place. Warnings go altogether: on a slow machine
// there may be more of them.
var unstable = []struct{ pattern, with string }{
	{`(?m)^([=-])[=-]{10,}$`, "${1}${1}${1}${1}"}, // as long as the paths are
	{`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"`, `"TIME"`},
	{`\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d`, "TIME"},
	{`\d+ MiB in use`, "N MiB in use"},
	{", not by the kernel's OOM killer", ""}, // unknown while other tests run out of memory
	{`(?m)^  note      : find out who sent SIGKILL: .*\n`, ""},
	{`(?m)^  "note": "find out who sent SIGKILL: .*\n`, ""},
	{`"duration": [\d.]+`, `"duration": 0`},
	{`(?s)  "goodput": \{.*?\},\n`, ""}, // TestGoodput
	{`"pid": \d+`, `"pid": 0`},
	{`\b(pid|PID)(:?) \d+`, "${1}${2} 0"},
	{`(?s)  "signaled_by": \{.*?\},\n`, ""}, // TestSenderIsNamed
	{`received SIGTERM from [^"\n]*`, "received SIGTERM"},
	{`"host": "[^"]*"`, `"host": "HOST"`},
	{`(?m)^  host      : .*$`, "  host      : HOST"},
	{`"elasticrun_version": "[^"]*"`, `"elasticrun_version": "VERSION"`},
	{`/(torchelastic|job)_[a-z0-9_]+/`, "/${1}_RANDOM/"},
	{`/(torchelastic|job)_[a-z0-9_]+\b`, "/${1}_RANDOM"},
	{`(?s)"warning_count": \d+,\n  "warnings": (\[\]|\[.*?\n  \])`, `"warnings": []`},
}

func (g *golden) matches(name, got string) {
	g.t.Helper()
	got = strings.NewReplacer(g.unstable...).Replace(got)
	for _, u := range unstable {
		got = regexp.MustCompile(u.pattern).ReplaceAllString(got, u.with)
	}
	path := filepath.Join("../../testdata/golden", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			g.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		g.t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		g.t.Errorf("%s; go test ./cmd/elasticrun -run TestGolden -update rewrites it (-want +got):\n%s", path, diff)
	}
}

// TestGolden compares the report of each kind of failure, by real processes, with a golden file.
func TestGolden(t *testing.T) {
	t.Parallel()
	two := []string{"--rdzv-id=job", "--nproc-per-node=2"}
	logs := append(two[:2:2], "--log-dir=logs", "--redirects=3")
	for _, tt := range []struct {
		name  string
		flags []string
		args  []string // fail.py, unless given
		do    func(g *golden) error
	}{
		{name: "success", flags: two[:1], args: []string{"fail.py", "succeed", "0"}},
		{name: "exception", flags: two, args: []string{"fail.py", "exception", "1"}},
		{
			name: "exception_in_files", flags: append(logs, "--max-restarts=1", "--min-uptime=0"),
			args: []string{"fail.py", "exception", "1"},
		},
		{name: "exit_3", flags: two, args: []string{"fail.py", "exit", "1"}},
		{name: "sigsegv", flags: two, args: []string{"fail.py", "segv", "1"}},
		{name: "import_error", flags: two, args: []string{"fail.py", "import", "1"}},
		{name: "error_file", flags: logs, args: []string{"fail.py", "error_file", "1"}},
		{name: "error_file_half", flags: two, args: []string{"fail.py", "error_file_half", "1"}},
		{name: "error_file_success", flags: two[:1], args: []string{"fail.py", "error_file_success", "0"}},
		{name: "stuck", flags: append(two[:2:2], "--error-exit-timeout=0.2"), args: []string{"fail.py", "stuck", "1"}},
		{name: "script_missing", flags: two, args: []string{"nowhere.py"}},
		{name: "program_missing", flags: append(two[:2:2], "--no-python"), args: []string{"./nowhere"}},
		{name: "killed", flags: two, args: []string{"fail.py", "wait", "1"}, do: func(g *golden) error {
			pids := []int{g.ready(), g.ready()}
			for _, pid := range pids { // one is enough; which has rank 1 is in its environment
				environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
				if err != nil {
					return err
				}
				if strings.Contains(string(environ), "\x00RANK=1\x00") {
					return syscall.Kill(pid, syscall.SIGKILL)
				}
			}
			return fmt.Errorf("no worker of %v has rank 1", pids)
		}},
		{name: "stopped", flags: two, args: []string{"fail.py", "wait", "1"}, do: func(g *golden) error {
			g.ready()
			g.ready()
			return g.cmd.Process.Signal(syscall.SIGTERM)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := startGolden(t, slices.Concat(tt.flags, tt.args)...)
			if tt.do != nil {
				if err := tt.do(g); err != nil {
					t.Fatal(err)
				}
			}
			_, data := g.end()
			g.compare(tt.name, data)
		})
	}
}

// TestGoldenElsewhere compares the report of a failure on another node with a golden file.
func TestGoldenElsewhere(t *testing.T) {
	t.Parallel()
	store := startStore(t)
	node := func(rank int) *golden {
		return startGolden(t, "--rdzv-id=job", "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint="+store.addr,
			"--node-rank="+strconv.Itoa(rank), "fail.py", "exception", "0")
	}
	there, here := node(0), node(1)
	first, _ := there.end()
	second, data := here.end()
	if first.RootCause == nil || second.RootCause == nil || first.RootCause.PID != second.RootCause.PID ||
		first.ExitCode != second.ExitCode {
		t.Errorf("the two nodes end by\n%+v\nand\n%+v", first.RootCause, second.RootCause)
	}
	here.compare("elsewhere", data, there)
	store.signal(syscall.SIGTERM)
	store.end()
}
