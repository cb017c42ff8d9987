package zoo

import (
	"syscall"
	"testing"
)

// TestProcessTrees checks that all processes that a worker starts end with the job, however they hide.
func TestProcessTrees(t *testing.T) {
	runEach(t, []misbehavior{
		{mode: "groups", code: 3, cause: "worker_failed rank=1"},
		{mode: "thousand", code: 3, cause: "worker_failed rank=1"},
		{mode: "ignores_signals", flags: []string{"--shutdown-timeout=1"}, code: 3, cause: "worker_failed rank=0"},
		{mode: "daemon", code: 3, cause: "worker_failed rank=1"},
		{mode: "hidden_daemon", code: 3, cause: "worker_failed rank=1"},
		{mode: "holder", code: 3, cause: "worker_failed rank=1"},
		{mode: "chain", code: 3, cause: "worker_failed rank=1"},
		{mode: "storm", code: 3, cause: "worker_failed rank=1"},
		{mode: "zombie_leader", code: 3, cause: "worker_failed rank=1"},
		{mode: "kills_agent", code: 137, cause: "reason=signal"},
		{mode: "removes_logs", flags: []string{"--max-restarts=1", "--min-uptime=0"}, code: 3, cause: "worker_failed rank=1"},
		{mode: "bomb", args: []string{"300"}, code: 3, cause: "worker_failed rank=1"},
		{mode: "stopped", code: 3, cause: "worker_failed rank=0"},
	})
}

// TestWorkersThatIgnoreSignals checks that a launcher that gets a stop signal waits no longer than its grace for
// workers that ignore signals.
func TestWorkersThatIgnoreSignals(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			j := launch{
				flags: []string{"--nproc-per-node=1", "--shutdown-timeout=1"},
				args:  []string{"ignores_signals"},
			}.start(t)
			j.awaitReady()
			if err := j.cmd.Process.Signal(sig); err != nil {
				t.Error(err)
			}
			j.end()
			j.want(128+int(sig), "reason=signal")
		})
	}
}
