package zoo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

const (
	// bound is far longer than any job here takes, even on a busy machine.
	bound = 2 * time.Minute
	// maxMemory bounds the memory of guard and agent together, in bytes.
	maxMemory = 100 << 20
)

// zooScript returns the path of a script in testdata/zoo.
func zooScript(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs("../../../testdata/zoo/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// job is a running launch of the binary.
type job struct {
	t      testing.TB
	mark   string
	cmd    *exec.Cmd
	stdout output
	stderr output
	logs   string // its --log-dir
	held   string // a FIFO that every worker process holds open
	ready  string // a FIFO to which a worker writes when it is ready

	begun   time.Time
	quit    chan struct{}
	peak    int64 // peak of guard and agent together, in bytes; valid once watched is closed
	watched chan struct{}
}

// launch describes how to start a job.
type launch struct {
	dir      string   // folder for the job, with the binary and zoo.py; empty for the user's own folders
	console  *os.File // stdout; nil to capture it
	terminal *os.File // stdin, stdout and stderr, the session's terminal; nil for none
	flags    []string
	wrap     []string // program that executes its arguments, in front of the binary
	args     []string // arguments of zoo.py
}

// start starts a job of two workers and watches its memory.
func (l launch) start(t testing.TB) *job {
	t.Helper()
	python, tmp, binary, script := testenv.Python(t), l.dir, testenv.Binary(t), zooScript(t, "zoo.py")
	if l.dir == "" {
		tmp = t.TempDir()
	} else {
		binary, script = filepath.Join(tmp, filepath.Base(binary)), filepath.Join(tmp, filepath.Base(script))
	}
	ready, held := filepath.Join(tmp, "ready"), filepath.Join(tmp, "held")
	for _, fifo := range []string{ready, held} {
		if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.Chmod(fifo, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	j := &job{
		t:       t,
		mark:    testenv.Mark(),
		logs:    filepath.Join(tmp, "logs"),
		ready:   ready,
		held:    held,
		quit:    make(chan struct{}),
		watched: make(chan struct{}),
	}
	argv := append(append([]string{}, l.wrap...), binary, "--nproc-per-node=2", "--log-dir="+j.logs)
	argv = append(append(append(argv, l.flags...), script), l.args...)
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	t.Cleanup(cancel)
	j.cmd = exec.CommandContext(ctx, argv[0], argv[1:]...)
	j.cmd.WaitDelay = 10 * time.Second // after that, a leftover process holds stdout or stderr
	j.cmd.Env = append(os.Environ(), j.mark, "PYTHON_EXEC="+python, "TMPDIR="+tmp, "ZOO_READY="+ready, "ZOO_HELD="+held)
	j.cmd.Stdout, j.cmd.Stderr = &j.stdout, &j.stderr
	if l.console != nil {
		j.cmd.Stdout = l.console
	}
	if l.terminal != nil {
		j.cmd.Stdin, j.cmd.Stdout, j.cmd.Stderr = l.terminal, l.terminal, l.terminal
		j.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	j.begun = time.Now()
	go j.watch()
	return j
}

// run starts a job and waits for its end.
func (l launch) run(t testing.TB) *job {
	t.Helper()
	j := l.start(t)
	j.end()
	return j
}

// awaitReady waits until a worker has written to the FIFO.
func (j *job) awaitReady() {
	j.t.Helper()
	fifo, err := os.OpenFile(j.ready, os.O_RDWR|syscall.O_NONBLOCK, 0) // this end for writing prevents end of file
	if err != nil {
		j.t.Fatal(err)
	}
	defer fifo.Close()
	_ = fifo.SetReadDeadline(time.Now().Add(bound))
	if _, err := fifo.Read(make([]byte, 1)); err != nil {
		j.t.Errorf("no worker got ready: %v", err)
	}
}

// end waits for the job and checks what holds for every job.
func (j *job) end() {
	j.t.Helper()
	err := j.cmd.Wait()
	close(j.quit)
	<-j.watched
	if j.cmd.ProcessState == nil {
		j.t.Fatal(err)
	}
	testenv.NothingLeft(j.t, j.mark)
	j.nobodyHolds()
	if j.peak > maxMemory {
		j.t.Errorf("guard and agent took %d MiB, want at most %d", j.peak>>20, maxMemory>>20)
	}
	j.t.Logf("the job took %v, guard and agent %d MiB", time.Since(j.begun).Round(time.Millisecond), j.peak>>20)
}

// nobodyHolds checks that no process has the FIFO open. The kernel knows for certain, while a scan of all processes
// can miss one that forks and exits again and again.
func (j *job) nobodyHolds() {
	j.t.Helper()
	fd, err := syscall.Open(j.held, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		j.t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if n, err := syscall.Read(fd, make([]byte, 1)); n != 0 ||
		err != nil { // end of file means that no process has it open for writing
		j.t.Errorf("a process of the job still has %s open (%v)", j.held, err)
	}
}

func (j *job) code() int { return testenv.ExitCode(j.cmd.ProcessState) }

// want checks the exit code, the root cause in the last line of stderr, and other texts in stderr.
func (j *job) want(code int, cause string, texts ...string) {
	j.t.Helper()
	if j.code() != code {
		j.t.Errorf("exit code %d, want %d", j.code(), code)
	}
	stderr := strings.TrimSpace(j.stderr.String())
	if last := stderr[strings.LastIndexByte(stderr, '\n')+1:]; !strings.Contains(last, cause) {
		j.t.Errorf("the last line is %q, want %q in it", last, cause)
	}
	for _, text := range texts {
		if !strings.Contains(stderr, text) {
			j.t.Errorf("stderr lacks %q", text)
		}
	}
	if j.t.Failed() {
		j.t.Logf("%v, stderr:\n%s", j.cmd.ProcessState, stderr)
	}
}

// watch polls the peak memory of the guard and of its child, the agent.
func (j *job) watch() {
	defer close(j.watched)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		guard := j.cmd.Process.Pid
		sum := peakMemory(guard)
		for _, pid := range testenv.Children(guard) {
			sum += peakMemory(pid)
		}
		j.peak = max(j.peak, sum)
		select {
		case <-j.quit:
			return
		case <-again.C:
		}
	}
}

// peakMemory returns the peak memory of a process in bytes, or 0 if the process has ended.
func peakMemory(pid int) int64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	var kib int64
	_, _ = fmt.Sscan(after, &kib)
	return kib << 10
}

// output counts the bytes written to it and keeps the last ones.
type output struct {
	mu   sync.Mutex
	n    int64
	last []byte
}

const keep = 8 << 20

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n += int64(len(p))
	o.last = append(o.last, p...)
	if len(o.last) > 2*keep { // not at every write, because it copies
		o.last = append(o.last[:0], o.last[len(o.last)-keep:]...)
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.last)
}

// logFile reads a log of local rank 1, the worker that misbehaves.
func (j *job) logFile(name string) []byte {
	j.t.Helper()
	path := j.logPath(name)
	data, err := os.ReadFile(path)
	if err != nil {
		j.t.Fatal(err)
	}
	return data
}

func (j *job) logPath(name string) string {
	j.t.Helper()
	paths, err := filepath.Glob(filepath.Join(j.logs, "latest", "attempt_0", "1", name))
	if err != nil || len(paths) != 1 {
		j.t.Fatalf("%d files %s (%v), want one", len(paths), name, err)
	}
	return paths[0]
}
