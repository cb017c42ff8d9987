package rpc_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// memberProcess is a member in another process, seen by the test.
type memberProcess struct {
	memberConfig

	t    *testing.T
	id   int
	cmd  *exec.Cmd
	in   io.WriteCloser
	file *os.File // read end of its stdout
	out  *bufio.Reader
	errs *strings.Builder
}

// newMemberProcess starts a process that joins the group. cmd runs this test binary, possibly on another host. The
// first receive waits for the join.
func newMemberProcess(t *testing.T, cmd *exec.Cmd, mark string, cfg memberConfig, vars ...string) *memberProcess {
	t.Helper()
	config, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &memberProcess{memberConfig: cfg, t: t, cmd: cmd, errs: new(strings.Builder)}
	cmd.Env = append(append(os.Environ(), roleVariable+"="+roleMember, quickEnd, memberVariable+"="+string(config), mark), vars...)
	cmd.Stderr = r.errs
	var out io.Reader
	r.in, out = testenv.StartWithPipes(t, cmd)
	r.file, _ = out.(*os.File)
	r.out = bufio.NewReader(out)
	t.Cleanup(func() { r.kill() })
	return r
}

// send sends a command; receive returns its report.
func (r *memberProcess) send(line string) {
	r.t.Helper()
	if _, err := io.WriteString(r.in, line+"\n"); err != nil {
		r.t.Fatalf("%s: %s: %v\n%s", r.Name, line, err, r.errs)
	}
}

func (r *memberProcess) receive() memberReport {
	r.t.Helper()
	var report memberReport
	err := r.file.SetReadDeadline(time.Now().Add(testTimeout))
	if err == nil {
		var line []byte
		if line, err = r.out.ReadBytes('\n'); err == nil {
			err = json.Unmarshal(line, &report)
		}
	}
	if err != nil {
		r.kill() // then its stderr is complete
		r.t.Fatalf("%s: no answer: %v\n%s", r.Name, err, r.errs)
	}
	return report
}

func (r *memberProcess) request(line string) memberReport {
	r.t.Helper()
	r.send(line)
	return r.receive()
}

func (r *memberProcess) signal(sig syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.t.Fatalf("%s: %v", r.Name, err)
	}
}

// kill sends SIGKILL to a process that may have ended.
func (r *memberProcess) kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

// end waits for a process that exits by itself, with code 0.
func (r *memberProcess) end() {
	r.t.Helper()
	r.in.Close()
	if err := r.cmd.Wait(); err != nil {
		r.t.Fatalf("%s: %v\n%s", r.Name, err, r.errs)
	}
}
