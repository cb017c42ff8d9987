package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/pkg/report"
)

// If a signal stops a job, the error and the report name the sender, whether the guard or the agent got the signal.
func TestSenderIsNamed(t *testing.T) {
	t.Parallel()
	me := fmt.Sprint("uid ", os.Getuid())
	name := ""
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		me, name = "user "+u.Username, u.Username
	}
	for _, tt := range []struct {
		signaled string
		text     string // of the sender; it has a pid
		command  string // how the sender's command begins
	}{
		{"guard", "received SIGTERM from pid %d (sh), " + me, "sh -c kill -TERM $0; read -r end "},
		{"agent", "received SIGTERM from pid %d (sh), " + me, "sh -c kill -TERM $0; read -r end "},
		{"guard after its sender has ended", "received SIGTERM from pid %d, which has ended, " + me, ""},
	} {
		t.Run(tt.signaled, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "report.json")
			j := startJob(t, "--report="+file)
			pid := j.cmd.Process.Pid
			if tt.signaled == "agent" {
				pid = j.agentPID()
			}
			sender := exec.Command("sh", "-c", "kill -TERM $0; read -r end", strconv.Itoa(pid))
			in, err := sender.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if tt.command == "" { // the guard looks only when it continues
				signalTo(t, j.cmd.Process, syscall.SIGSTOP)
			}
			if err := sender.Start(); err != nil {
				t.Fatal(err)
			}
			if tt.command == "" {
				_ = in.Close()
				_ = sender.Wait() // read has failed
				signalTo(t, j.cmd.Process, syscall.SIGCONT)
			}
			if code := j.end(); code != 143 {
				t.Errorf("exit code %d, want 143", code)
			}
			_ = in.Close()
			_ = sender.Wait()
			text := fmt.Sprintf(tt.text, sender.Process.Pid)
			if !strings.Contains(j.stderr.String(), "elasticrun: "+text+"\n") {
				t.Errorf("stderr lacks %q:\n%s", text, &j.stderr)
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var rep report.Report
			if err := json.Unmarshal(data, &rep); err != nil {
				t.Fatal(err)
			}
			s := rep.SignaledBy
			if s == nil || s.PID != sender.Process.Pid || s.UID != os.Getuid() || s.User != name ||
				!strings.HasPrefix(s.Command, tt.command) || (s.Command == "") != (tt.command == "") {
				t.Errorf("signaled by %+v", s)
			}
		})
	}
}

func signalTo(t *testing.T, p *os.Process, sig syscall.Signal) {
	t.Helper()
	if err := p.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// Ctrl-C at a terminal has no sender.
func TestTerminalIsNamed(t *testing.T) {
	x := startTerminal(t, "import time\nprint('ready', flush=True)\ntime.sleep(1000)")
	x.expect("ready")
	x.press("\x03")
	x.expect("elasticrun: received SIGINT from the terminal\r\n")
	if code := x.end(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
}
