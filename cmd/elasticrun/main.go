// Command elasticrun starts, watches and restarts the workers of a distributed
// training job. It is a drop-in for torchrun.
//
// The process that the user starts is the guard: it runs the same program again as the agent
// and cleans up after it, however it ends. The agent reads the configuration,
// wires the packages together and maps what they return to an exit code; nothing
// else knows concrete types.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/procs/guard"
)

// How many threads of guard and agent run Go code at once, however many CPUs there are: they have little to do, and each
// such thread counts against the limits on threads that they share with the workers.
const (
	guardCPUs = 2
	agentCPUs = 8
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if !guard.Started() && !isSubcommand(args) {
		if err := procs.CheckRoom(boundedCPUs(runtime.GOMAXPROCS(0), agentCPUs)); err != nil { // first, because all else may take a thread
			return fail(conclude(agent.RunResult{}, err))
		}
	}
	// Received and dropped: a console that went away is then an error of a write,
	// and a SIGQUIT before its handler is there does not make the runtime crash.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGQUIT)
	role, lifeline, err := guard.OpenLifeline()
	if err != nil {
		fmt.Fprintln(os.Stderr, "elasticrun:", err)
		return exitUsage
	}
	defer lifeline.Close()
	if role != guard.RoleAgent && !isSubcommand(args) {
		if code, done := execSrun(args); done {
			return code
		}
		if guard.Supported() {
			limitCPUs(guardCPUs)
			code := runGuard(lifeline)
			lifeline.AnnounceExit(code)
			return code
		}
	}
	if role == guard.RoleAgent {
		limitCPUs(agentCPUs)
		procs.SetProcessName("erun-agent")
		// It is in the background of its terminal, where stty tostop would stop it.
		signal.Ignore(syscall.SIGTTOU)
		if err := procs.ReserveThreads(); err != nil {
			code := fail(conclude(agent.RunResult{}, err))
			lifeline.AnnounceExit(code)
			return code
		}
	}
	procs.CloseOnExecInherited()
	code := execute(args, lifeline)
	lifeline.AnnounceExit(code) // not in a defer: a panic must not come so far
	return code
}

// limitCPUs bounds how many threads run Go code at once, unless GOMAXPROCS says it.
func limitCPUs(n int) {
	if now := runtime.GOMAXPROCS(0); boundedCPUs(now, n) != now {
		runtime.GOMAXPROCS(n)
	}
}

// boundedCPUs is how many threads run Go code at once after limitCPUs, where so many do now.
func boundedCPUs(now, n int) int {
	if os.Getenv("GOMAXPROCS") != "" {
		return now
	}
	return min(now, n)
}
