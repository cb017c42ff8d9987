package main

import (
	"fmt"
	"os"
	"time"

	"github.com/elasticrun/elasticrun/internal/backends"
	"github.com/elasticrun/elasticrun/internal/exitcode"
	"github.com/elasticrun/elasticrun/internal/plural"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/procs/guard"
)

// runGuard runs the agent, cleans up after it and returns its exit code.
func runGuard(lifeline *guard.Lifeline) int {
	r, err := guard.Run(guard.Options{
		Lifeline: lifeline, SweepTimeout: killTimeout, ShortSweepTimeout: killTimeout,
		OnDeadline: func(after time.Duration) {
			fmt.Fprintf(os.Stderr, "elasticrun: the agent was silent for %s: its workers were killed\n", seconds.Format(after))
		},
		OnSuspend:  func(workers int) { fmt.Fprintln(os.Stderr, suspendedLine(workers)) },
		OnContinue: func() { fmt.Fprintln(os.Stderr, "elasticrun: continued") },
	})
	if err != nil {
		return fail(conclude(agent.RunResult{}, err))
	}
	if r.ExitNotice != nil {
		timeout := backends.ExitNoticeTimeout
		if r.ExitAnnounced { // the agent has tried itself
			timeout = backends.ExitNoticeAttempt
		}
		// If the agent has reported how it ended, its last line must stay the last.
		if err := backends.SendExitNotice(r.ExitNotice, r.Record, timeout); err != nil && !r.ExitAnnounced {
			fmt.Fprintln(os.Stderr, "elasticrun: the rendezvous did not get notice of the agent's end, "+
				"so the other nodes wait until its session expires:", err)
		}
	}
	if !r.StuckReported { // else the agent's last line stays the last
		for _, p := range r.Stuck {
			fmt.Fprintln(os.Stderr, "elasticrun: a process of the job survives SIGKILL:", p)
		}
	}
	if r.ExitAnnounced {
		return r.Exit.ShellCode()
	}
	return fail(agentLost(r))
}

// suspendedLine announces that the job of this node was suspended.
func suspendedLine(workers int) string {
	what := "elasticrun: suspended"
	if workers > 0 { // else the node waits for other nodes, or stops its workers
		what += " " + plural.Of(workers, "worker")
	}
	return what + "; continue with fg"
}

// agentLost returns the ending of an agent that did not report one. It was killed, or it crashed; after a crash its
// exit code is the Go runtime's and means nothing.
func agentLost(r guard.Result) ending {
	end := ending{code: exitInternal, reason: exitcode.ReasonInternal}
	how := r.Exit.String()
	if r.Exit.Signal != 0 {
		end = ending{code: r.Exit.ShellCode(), reason: exitcode.ReasonSignal}
		how = "was " + how // killed by signal 9 (SIGKILL)
	}
	end.err = fmt.Errorf("the agent, pid %d, %s; its workers were killed, %s reaped",
		r.Exit.PID, how, plural.Of(r.Swept, "process"))
	return end
}
