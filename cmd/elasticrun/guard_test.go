package main

import (
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/procs/guard"
)

func TestAgentLost(t *testing.T) {
	for _, tt := range []struct {
		exit procs.Exit
		code int
		want string
	}{
		{
			procs.Exit{PID: 7, Signal: syscall.SIGKILL},
			137,
			"elasticrun: the agent, pid 7, was killed by signal 9 (SIGKILL); its workers were killed, 3 processes reaped\n" +
				"elasticrun: exit_code=137 reason=signal\n",
		},
		{
			procs.Exit{PID: 7, Code: 2},
			70,
			"elasticrun: the agent, pid 7, exited with code 2; its workers were killed, 3 processes reaped\n" +
				"elasticrun: exit_code=70 reason=internal\n",
		},
	} {
		if e := agentLost(guard.Result{Exit: tt.exit, Swept: 3}); e.code != tt.code || e.text() != tt.want {
			t.Errorf("%v: code %d, want %d:\n%swant\n%s", tt.exit, e.code, tt.code, e.text(), tt.want)
		}
	}
}

func TestSuspendedLine(t *testing.T) {
	for workers, want := range map[int]string{
		0: "elasticrun: suspended; continue with fg",
		1: "elasticrun: suspended 1 worker; continue with fg",
		8: "elasticrun: suspended 8 workers; continue with fg",
	} {
		if got := suspendedLine(workers); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
