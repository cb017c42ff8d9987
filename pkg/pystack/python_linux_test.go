package pystack

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// systemPython is the interpreter that every machine which tests has. It is linked statically in Debian.
const systemPython = "/usr/bin/python3"

// morePythons is a variable with paths of further interpreters to test, separated by colons.
const morePythons = "ELASTICRUN_TEST_PYTHONS"

// interpreter is a Python to test.
type interpreter struct {
	name, path, torch string
}

// interpreters are Debian's, and those of morePythons.
func interpreters() []interpreter {
	all := []interpreter{{name: "system"}, {name: "library"}, {name: "trixie", torch: "2.6"}, {name: "forky", torch: "2.14"}}
	for _, path := range filepath.SplitList(os.Getenv(morePythons)) {
		all = append(all, interpreter{name: strings.ReplaceAll(path, "/", "_"), path: path})
	}
	return all
}

// find returns the path of an interpreter.
func (i interpreter) find(t testing.TB) string {
	t.Helper()
	switch {
	case i.path != "":
		return i.path
	case i.torch != "":
		return testenv.Torch(t, i.torch)
	case i.name == "library":
		return embedded(t)
	}
	return python(t)
}

// python returns the system's interpreter.
func python(t testing.TB) string {
	t.Helper()
	if _, err := os.Stat(systemPython); err != nil {
		testenv.Missing(t, "needs %s (apt-get install python3): %v", systemPython, err)
	}
	return systemPython
}

// embedded returns a program that has Python in a shared library.
func embedded(t testing.TB) string {
	t.Helper()
	libraries, err := filepath.Glob("/usr/lib/*/libpython3.*.so.1.0")
	if err != nil || len(libraries) == 0 {
		testenv.Missing(t, "needs libpython (apt-get install python3-dev): %v", err)
	}
	return link(t, "testdata/embed.c", "trainer", libraries[0])
}

// link compiles a C file and links it to libraries.
func link(t testing.TB, source, name string, args ...string) string {
	t.Helper()
	if err := testenv.Programs(map[string]string{"cc": "gcc libc6-dev"}); err != nil {
		testenv.Missing(t, "needs a C compiler: %v", err)
	}
	program := filepath.Join(t.TempDir(), name)
	cc := exec.CommandContext(t.Context(), "cc", append([]string{"-o", program, source}, args...)...)
	if out, err := cc.CombinedOutput(); err != nil {
		testenv.Missing(t, "cc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return program
}

// program is a running Python program.
type program struct {
	t     testing.TB
	cmd   *exec.Cmd
	pid   int
	stdin io.WriteCloser
	lines *bufio.Reader
}

// start runs a command that prints a line when it is ready. The test's cleanup kills it.
func start(t testing.TB, attr *syscall.SysProcAttr, argv ...string) *program {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.SysProcAttr = attr
	cmd.Stderr = t.Output()
	stdin, stdout := testenv.StartWithPipes(t, cmd)
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it can have ended
		_ = cmd.Wait()         // killed
	})
	return &program{t: t, cmd: cmd, pid: cmd.Process.Pid, stdin: stdin, lines: bufio.NewReader(stdout)}
}

// line returns the next line that the program prints, without its end.
func (p *program) line() string {
	p.t.Helper()
	line, err := p.lines.ReadString('\n')
	if err != nil {
		p.t.Fatalf("%v: read a line: %v", p.cmd.Args, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// end closes the program's stdin, which ends it.
func (p *program) end() {
	p.stdin.Close()
}

// mustOpen opens a process.
func mustOpen(t testing.TB, pid int) *Process {
	t.Helper()
	p, err := Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// mustThreads reads the threads of a process.
func mustThreads(t testing.TB, p *Process) []Thread {
	t.Helper()
	threads, err := p.Threads()
	if err != nil {
		t.Fatal(err)
	}
	return threads
}

// functions returns the names of a thread's functions, innermost first.
func functions(thread Thread) []string {
	var all []string
	for _, f := range thread.Frames {
		all = append(all, f.Function)
	}
	return all
}

// write sends text to the program.
func (p *program) write(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, text); err != nil {
		p.t.Fatal(err)
	}
}
