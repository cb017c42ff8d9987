package scenario

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/hosts"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// service is a program that the test restarts whenever it ends, as an init system or a kubelet does.
type service struct {
	t    testing.TB
	host *hosts.Host
	name string
	env  []string
	args []string
	log  string // file with the output of all runs

	off     bool      // the program is not to run now
	p       *program  // nil before the first start
	again   time.Time // time of the next start
	started int
	codes   map[int]int    // number of ends by exit code
	first   map[int]string // last output before the first end with each code
}

// startLine begins the line in the log before the output of each run.
const startLine = "==== "

// restartPause is the time from the end of a service to its next start.
const restartPause = 100 * time.Millisecond

// keep starts the service, unless it runs or is off.
func (s *service) keep() {
	s.t.Helper()
	if s.p != nil && s.p.ended() {
		code := s.p.code()
		if s.codes[code]++; s.codes[code] == 1 {
			s.first[code] = s.tail(3)
		}
		s.p, s.again = nil, time.Now().Add(restartPause)
	}
	if s.p != nil || s.off || time.Now().Before(s.again) {
		return
	}
	out, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	fmt.Fprintf(out, startLine+"%.3f: start %d\n", monotonic(), s.started)
	cmd := s.host.Command(s.t.Context(), s.args[0], s.args[1:]...)
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.started++
	p := &program{t: s.t, host: s.host, name: s.name, cmd: cmd, output: s.log, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
	}()
	s.p = p
}

// signal sends a signal to the process that was started: the guard or a store.
func (s *service) signal(sig syscall.Signal) {
	if s.p != nil {
		_ = s.p.cmd.Process.Signal(sig) // fails if the process has ended
	}
}

// agent returns the process id of the agent below the guard, or 0.
func (s *service) agent() int {
	if s.p == nil {
		return 0
	}
	return testenv.AgentBelow(s.p.cmd.Process.Pid)
}

// signalTo sends a signal to a process, which can have ended. It ignores process id 0.
func signalTo(pid int, sig syscall.Signal) {
	if pid > 0 {
		_ = syscall.Kill(pid, sig)
	}
}

// sinceStart returns the output of the latest run.
func (s *service) sinceStart() string {
	text := s.tail(math.MaxInt)
	return text[max(0, strings.LastIndex(text, startLine)):]
}

// tail returns the last lines of the service's output.
func (s *service) tail(n int) string {
	data, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return lastLines(string(data), n)
}

// parentIsAgent reports whether a process is a worker, and not a process that a worker has started.
func parentIsAgent(l life) bool {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.PID))
	for line := range strings.Lines(string(status)) {
		if parent, ok := strings.CutPrefix(line, "PPid:"); ok {
			name, _ := os.ReadFile("/proc/" + strings.TrimSpace(parent) + "/comm")
			return strings.TrimSpace(string(name)) == "erun-agent"
		}
	}
	return false
}

// oddCodes returns the exit codes, and the last output, with which an agent must not end before its job. Expected codes
// are 137 (killed), 143 (stopped by SIGTERM), 75 (lost rendezvous) and 2, 71 and 72 (full or hanging log folder).
func oddCodes(s *service, disk bool) []string {
	var odd []string
	for c := range s.codes {
		if c != 137 && c != 143 && c != exitRendezvous && (!disk || c != 2 && c != 71 && c != 72) {
			odd = append(odd, fmt.Sprintf("%d, having written\n%s", c, s.first[c]))
		}
	}
	return odd
}

// codesOf describes how often a service has ended with which exit code.
func codesOf(s *service) string {
	var codes []int
	for c := range s.codes {
		codes = append(codes, c)
	}
	slices.Sort(codes)
	text := fmt.Sprintf("%s: %d starts", s.name, s.started)
	for _, c := range codes {
		text += fmt.Sprintf(", code %d %d times", c, s.codes[c])
	}
	return text
}
