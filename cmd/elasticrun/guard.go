package main

import (
	"fmt"
	"os"
	"time"

	"github.com/elasticrun/elasticrun/internal/backends"
	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/procs/guard"
)

// runGuard runs the agent and ends with its exit code.
func runGuard(lifeline *guard.Lifeline) int {
	r, err := guard.Run(lifeline, func(after time.Duration) {
		fmt.Fprintf(os.Stderr, "elasticrun: the agent gave no sign of life for %v: its workers were killed\n", after)
	})
	if err != nil {
		return fail(conclude(agent.RunResult{}, err))
	}
	if r.ExitNotice != nil {
		timeout := backends.ExitNoticeTimeout
		if r.ExitAnnounced { // it has tried itself
			timeout = backends.ExitNoticeAttempt
		}
		if err := backends.SendExitNotice(r.ExitNotice, timeout); err != nil && !r.ExitAnnounced { // else its last line stays the last
			fmt.Fprintln(os.Stderr, "elasticrun: the other nodes go on later, since the rendezvous could not be told of the agent's end:", err)
		}
	}
	if r.StuckReported {
		r.Stuck = nil // the agent's last line stays the last
	}
	for _, p := range r.Stuck {
		fmt.Fprintln(os.Stderr, "elasticrun: a process of the job does not die:", p)
	}
	if r.ExitAnnounced {
		return r.Exit.ShellCode()
	}
	return fail(agentLost(r))
}

// agentLost explains an agent that ended without saying so: it was killed, or it
// crashed, and then its exit code is the Go runtime's and means nothing.
func agentLost(r guard.Result) ending {
	end := ending{code: exitInternal, reason: config.ReasonInternal}
	if r.Exit.Signal != 0 {
		end = ending{code: r.Exit.ShellCode(), reason: config.ReasonSignal}
	}
	how := r.Exit.String()
	if r.Exit.Signal != 0 {
		how = "was " + how // killed by signal 9 (SIGKILL)
	}
	end.err = fmt.Errorf("the agent, pid %d, %s; the job was ended, %d processes reaped", r.Exit.PID, how, r.Swept)
	return end
}
