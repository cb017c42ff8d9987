package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestMain makes this test binary an elasticrun when it is called by that name. The
// guard hands its own arguments on to the agent, name included, so the agent is one too.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "elasticrun" {
		testenv.ResetSignals()
	}
	commands := map[string]func(){
		"elasticrun": func() {
			shortenTimeouts()
			main()
		},
		"torchrun":  main, // for links to elasticrun
		refuserName: refuse,
	}
	if commands[filepath.Base(os.Args[0])] == nil {
		testenv.Parallel(4)
	}
	testscript.Main(m, commands)
}

// shortTimeouts is a variable of the environment that shortens timeouts of the test binary's elasticrun.
const shortTimeouts = "ELASTICRUN_TEST_SHORT_TIMEOUTS=1"

// shortenTimeouts shortens the launcher's waits for a console without a reader, for processes that survive SIGKILL, and
// for workers that finish after others.
func shortenTimeouts() {
	name, value, _ := strings.Cut(shortTimeouts, "=")
	if os.Getenv(name) == value {
		forcedExit, killTimeout, progressAfter = 5*time.Second, 2*time.Second, time.Second
	}
}

// testBinary returns the path of the elasticrun that testscript makes of this test binary, which obeys shortTimeouts.
func testBinary(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("elasticrun")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestScript runs the command line's cases, one file each. Beside testscript's own
// commands a script has
//
//	exitcode N PROGRAM [ARGS...]       run it; it must end with code N, 128+n for signal n
//	refused REGEXP PROGRAM [ARGS...]   run it; elasticrun must refuse its input, and may say what to type instead
//	await FILE [REGEXP]                wait until the file is there and matches
//	signal NAME                        send a signal to the one background program
//	exited N                           that program, after wait, must have ended with code N
//	empty DIR                          the folder must have nothing in it
//	certificates DIR NAME...           make DIR/NAME.pem and DIR/NAME-key.pem for localhost, signed by the authority
//	                                   DIR/ca.pem, which the first call makes
//	port NAME...                       set each variable to a port that nobody else is given while the script runs
//	quiet                              stderr must have the two lines of a job that succeeds, and nothing else
//
// PYTHON_EXEC is set to an interpreter. RUNS has a word for each repetition of a race. When a script ends no process of
// it may be left.
//
// In make soak, and in the scripts that racing matches, elasticrun is this test binary, with the race detector if the
// test has it. The other scripts start the release binary, which takes a third of the CPU time.
func TestScript(t *testing.T) {
	r, binary := newRefuser(t), testenv.Binary(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "../../testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			name := strings.TrimPrefix(filepath.Base(e.WorkDir), "script-")
			if !testenv.Whole(t) && !racing.MatchString(name) {
				e.Setenv("PATH", filepath.Dir(binary)+string(filepath.ListSeparator)+e.Getenv("PATH"))
			}
			e.Setenv("RUNS", strings.Repeat("x ", testenv.Repeat(t, 2, 8)))
			return setUpScript(e)
		},
		Condition: scriptCondition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode": cmdExitcode,
			"refused": func(ts *testscript.TestScript, neg bool, args []string) {
				cmdRefused(ts, neg, args, r)
			},
			"await":  cmdAwait,
			"signal": cmdSignal,
			"exited": cmdExited,
			"empty":  cmdEmpty,
			"port":   cmdPort,
			"quiet":  cmdQuiet,

			"certificates": cmdCertificates,
		},
	})
}

// racing matches the scripts in which signals, restarts, observers, several nodes or much output meet a running job.
var racing = regexp.MustCompile(`^(event_log|leftovers|log_tee$|logs_follow|output_|preflight|restart_|scheduler_slurm_step|` +
	`signal_|simulate|stacks_|status_|store_(health|ready|signals))`)

func setUpScript(e *testscript.Env) error {
	// A process that another script forked while this one's files were written may have them open until it executes
	// its program, and the kernel executes no file that is open for writing ("text file busy").
	awaitForks()
	e.Setenv("PYTHON_EXEC", testenv.Python(e.T().(testing.TB)))
	if e.Getenv("GORACE") == "" { // by default every process lingers for a second
		e.Setenv("GORACE", "atexit_sleep_ms=10")
	}
	mark := testenv.Mark()
	name, value, _ := strings.Cut(mark, "=")
	e.Setenv(name, value)
	e.Values[lastSignaled{}] = new(*exec.Cmd)
	e.Values[authorities{}] = map[string]*testenv.Authority{}
	e.Values[scriptTest{}] = e.T()
	e.Defer(func() { testenv.NothingLeft(e.T().(testing.TB), mark) })
	return nil
}

// awaitForks returns when every process that this one has forked executes its program.
func awaitForks() {
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
}

// scriptTest and authorities are keys of a script's values: its test, and the authorities by their folder.
type (
	scriptTest  struct{}
	authorities struct{}
)

func cmdPort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: port NAME...")
	}
	for _, name := range args {
		ts.Setenv(name, strconv.Itoa(testenv.FreePort(ts.Value(scriptTest{}).(testing.TB))))
	}
}

func cmdCertificates(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: certificates DIR NAME...")
	}
	t, made := ts.Value(scriptTest{}).(testing.TB), ts.Value(authorities{}).(map[string]*testenv.Authority)
	dir := ts.MkAbs(args[0])
	authority := made[dir]
	if authority == nil {
		ts.Check(os.MkdirAll(dir, 0o700))
		authority = testenv.NewAuthority(t, args[0])
		made[dir] = authority
		testenv.TrustAt(t, filepath.Join(dir, "ca.pem"), authority)
	}
	for _, name := range args[1:] {
		cert, key := filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem")
		authority.IssueAt(t, cert, key, name, func(c *x509.Certificate) {
			c.DNSNames, c.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
		})
	}
}

func scriptCondition(cond string) (bool, error) {
	switch cond {
	case "nvidia":
		_, err := os.Stat("/proc/driver/nvidia/gpus")
		return err == nil, nil
	case "root":
		return os.Getuid() == 0, nil
	}
	return false, fmt.Errorf("unknown condition %q", cond)
}

// scriptExec runs a program and returns its exit code.
func scriptExec(ts *testscript.TestScript, args []string) int {
	err := ts.Exec(args[0], args[1:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return testenv.ExitCode(exit.ProcessState)
	}
	ts.Check(err)
	return 0
}

func cmdExitcode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode N PROGRAM [ARGS...]")
	}
	if code := scriptExec(ts, args[1:]); strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// cmdRefused checks what every refusal has in common: code 2, one line that says why, the line for machines, and
// nothing else anywhere. If r is not nil, it runs the command line.
func cmdRefused(ts *testscript.TestScript, neg bool, args []string, r *refuser) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: refused REGEXP PROGRAM [ARGS...]")
	}
	want, err := regexp.Compile("^elasticrun: (" + args[0] + ")$")
	ts.Check(err)
	run := scriptExec
	if args[1] == "elasticrun" && r != nil {
		run = r.exec
	}
	if code := run(ts, args[1:]); code != exitUsage {
		ts.Fatalf("exit code %d, want %d", code, exitUsage)
	}
	why, last, _ := strings.Cut(ts.ReadFile("stderr"), "\n")
	for strings.HasPrefix(last, indent) {
		_, last, _ = strings.Cut(last, "\n")
	}
	switch {
	case !want.MatchString(why):
		ts.Fatalf("refused with\n%s\nwhich does not match\n%s", why, want)
	case last != "elasticrun: exit_code=2 reason=usage\n":
		ts.Fatalf("the rest of stderr is %q", last)
	case ts.ReadFile("stdout") != "":
		ts.Fatalf("stdout is not empty")
	}
	cmdEmpty(ts, false, []string{ts.Getenv("TMPDIR")})
}

// awaitBound is far longer than anything takes that a script waits for.
const awaitBound = time.Minute

func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: await FILE [REGEXP]")
	}
	want, err := regexp.Compile("(?m)" + strings.Join(args[1:], ""))
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), awaitBound)
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		data, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && want.Match(data) {
			return
		}
		select {
		case <-ctx.Done():
			ts.Fatalf("waited %v for %s; it holds %q (%v)", awaitBound, args[0], data, err)
		case <-again.C:
		}
	}
}

// lastSignaled is the key under which a script keeps the program that it signaled.
type lastSignaled struct{}

func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	jobs := ts.BackgroundCmds()
	if neg || len(args) != 1 || len(jobs) != 1 {
		ts.Fatalf("usage: signal NAME, while one program is in the background")
	}
	sig := unix.SignalNum("SIG" + args[0])
	if sig == 0 {
		ts.Fatalf("unknown signal %s", args[0])
	}
	*ts.Value(lastSignaled{}).(**exec.Cmd) = jobs[0]
	ts.Check(jobs[0].Process.Signal(sig))
}

func cmdExited(ts *testscript.TestScript, neg bool, args []string) {
	cmd := *ts.Value(lastSignaled{}).(**exec.Cmd)
	if neg || len(args) != 1 || cmd == nil || cmd.ProcessState == nil {
		ts.Fatalf("usage: exited N, after signal and wait")
	}
	if code := testenv.ExitCode(cmd.ProcessState); strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

func cmdEmpty(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: empty DIR")
	}
	entries, err := filepath.Glob(filepath.Join(ts.MkAbs(args[0]), "*"))
	ts.Check(err)
	if len(entries) > 0 {
		ts.Fatalf("%s holds %s", args[0], strings.Join(entries, ", "))
	}
}

// twoLines matches what a job that succeeds prints on node rank 0.
var twoLines = regexp.MustCompile(`^elasticrun: .*\b\d+ workers?\b.*\nelasticrun: .* succeeded in \S+, \d+ restarts?\n$`)

func cmdQuiet(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: quiet")
	}
	if got := ts.ReadFile("stderr"); !twoLines.MatchString(got) {
		ts.Fatalf("stderr holds more or less than the line at the start and the one at the end:\n%s", got)
	}
}
