package config

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestPreemption(t *testing.T) {
	for _, tt := range []struct {
		args    string
		signals []syscall.Signal
		notice  time.Duration
		warning string
		problem string
	}{
		{args: ""},
		{args: "--preempt-signals=USR1", signals: []syscall.Signal{syscall.SIGUSR1}},
		{args: "--preempt-signals=usr2,SIGXCPU,USR2", signals: []syscall.Signal{syscall.SIGUSR2, syscall.SIGXCPU}},
		{args: "--on-sigterm=preempt", signals: []syscall.Signal{syscall.SIGTERM}},
		{
			args:    "--on-sigterm=preempt --preempt-signals=USR1 --preempt-notice=2m",
			signals: []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM}, notice: 2 * time.Minute,
		},
		{args: "--signals-to-handle=TERM --preempt-signals=HUP", signals: []syscall.Signal{syscall.SIGHUP}},
		{
			args:    "--preempt-grace=10",
			warning: "--preempt-grace=10: has no effect without --preempt-signals or --on-sigterm=preempt",
		},
		{
			args:    "--signals-to-handle=SIGTERM,SIGUSR1 --preempt-signals=USR1",
			problem: "--preempt-signals=USR1: has SIGUSR1, on which the launcher stops this node: leave it out here, or take it out of --signals-to-handle",
		},
		{
			args:    "--preempt-signals=12",
			problem: `--preempt-signals=12: has "12"; it may have USR1, USR2, HUP, INT, ALRM, VTALRM and XCPU`,
		},
		{args: "--preempt-signals=SIGTERM", problem: "--preempt-signals=SIGTERM: must not have SIGTERM: use --on-sigterm=preempt"},
		{args: "--preempt-exit-code=256", problem: "--preempt-exit-code=256: must be between 1 and 255"},
	} {
		c, err := resolveArgs(machine{}, append(strings.Fields(tt.args), "s.py")...)
		if tt.problem != "" {
			if err == nil || err.Error() != tt.problem {
				t.Errorf("%s: %v, want %s", tt.args, err, tt.problem)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.args, err)
			continue
		}
		if !slices.Equal(c.PreemptSignals, tt.signals) || c.PreemptNotice != tt.notice {
			t.Errorf("%s: %v, %v", tt.args, c.PreemptSignals, c.PreemptNotice)
		}
		if tt.warning != "" && !slices.Contains(c.Warnings, tt.warning) {
			t.Errorf("%s: %q, want %q", tt.args, c.Warnings, tt.warning)
		}
	}
}
