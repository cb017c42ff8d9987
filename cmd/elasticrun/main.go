// Command elasticrun starts, supervises and restarts the workers of a distributed training job. It replaces torchrun.
//
// The process that the user starts becomes the guard. The guard runs the same program again as the agent, and cleans up
// after it however it ends. The agent reads the configuration, connects the packages, runs the job and maps its result
// to an exit code.
//
// This package holds main, the subcommands, the wiring of concrete types, the signals and the exit codes. What decides
// lives in the packages that it connects:
//
//	internal/workerspec   what a worker gets: command, environment, devices, CPUs
//	internal/backends     the rendezvous handler that --rdzv-backend names
//	internal/telemetry    event log and --status-addr
//	internal/records      --report and the error file
//	internal/preview      elasticrun explain; internal/doctor: elasticrun doctor and --preflight
//	internal/status       elasticrun status, ps and stop; internal/storeserver: elasticrun store
//
// The black-box tests of the whole command are here too, because testscript runs the main function of its own package.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/caller"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/procs/guard"
)

// guardCPUs and agentCPUs bound GOMAXPROCS of guard and agent. Both have little to do, and each of their threads counts
// against the limits on threads that they share with the workers.
const (
	guardCPUs = 2
	agentCPUs = 8
)

func main() { os.Exit(run(arguments(os.Args))) }

func run(args []string) int {
	if !guard.Started() && !isSubcommand(args) {
		// This check comes first, because everything else may start a thread.
		if err := procs.CheckRoom(boundedCPUs(runtime.GOMAXPROCS(0), agentCPUs)); err != nil {
			return fail(conclude(agent.RunResult{}, err))
		}
	}
	// Both signals are received and dropped. Without SIGPIPE's default, writing to a console that has gone returns an
	// error; without SIGQUIT's, one that comes before handleSignals does not make the runtime dump its stacks and exit.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGQUIT)
	role, lifeline, err := guard.OpenLifeline()
	if err != nil {
		fmt.Fprintln(os.Stderr, "elasticrun:", err)
		return exitUsage
	}
	defer lifeline.Close()
	if role != guard.RoleAgent && !isSubcommand(args) {
		if err := caller.Follow(); err != nil {
			return fail(conclude(agent.RunResult{}, err))
		}
		if code, done := execSrun(args); done {
			return code
		}
		if guard.Supported() {
			limitCPUs(guardCPUs)
			// The agent is in the background of its terminal, and so is the guard after Ctrl-Z and bg. There SIGTTOU would
			// stop a process that writes if stty tostop is set.
			signal.Ignore(syscall.SIGTTOU) // the agent inherits it
			code := runGuard(lifeline)
			lifeline.AnnounceExit(code)
			return code
		}
	}
	if role == guard.RoleAgent {
		limitCPUs(agentCPUs)
		procs.SetProcessName("erun-agent")
		if err := procs.ReserveThreads(); err != nil {
			code := fail(conclude(agent.RunResult{}, err))
			lifeline.AnnounceExit(code)
			return code
		}
	}
	procs.CloseOnExecInherited()
	code := execute(args, lifeline)
	lifeline.AnnounceExit(code) // not deferred: after a panic the guard must see that the agent crashed
	return code
}

// limitCPUs lowers GOMAXPROCS to n, unless the user has set it.
func limitCPUs(n int) {
	if now := runtime.GOMAXPROCS(0); boundedCPUs(now, n) != now {
		runtime.GOMAXPROCS(n)
	}
}

// boundedCPUs returns what limitCPUs would make of a GOMAXPROCS of now.
func boundedCPUs(now, n int) int {
	if os.Getenv("GOMAXPROCS") != "" {
		return now
	}
	return min(now, n)
}
