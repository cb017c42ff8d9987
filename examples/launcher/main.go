// Launcher runs one of two nodes without the elasticrun command, as in: launcher localhost:29400 python3 train.py.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/backends"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: launcher ENDPOINT PROGRAM [ARGS...]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	result, err := run(ctx, os.Args[1], os.Args[2], os.Args[3:])
	stop()
	root, _ := result.RootCause()
	fmt.Fprintf(os.Stderr, "%v after %d restarts; cause %q; error: %v\n", result.State, result.Restarts, root.Summary, err)
	if err != nil || result.State != agent.Succeeded {
		os.Exit(1)
	}
}

// run runs two workers of a program on this node until the job has ended on all nodes.
func run(ctx context.Context, endpoint, program string, args []string) (agent.RunResult, error) {
	rendezvous, err := backends.New(ctx, rdzv.Parameters{
		Backend: rdzv.BackendC10d, Endpoint: endpoint, RunID: "example", MinNodes: 2, MaxNodes: 2,
	}, backends.Options{Job: rounds.Job{MaxRestarts: 3}})
	if err != nil {
		return agent.RunResult{}, err
	}
	defer func() { _ = rendezvous.Shutdown(context.WithoutCancel(ctx)) }()
	console := workerlog.NewConsole(os.Stdout, os.Stderr)
	supervisor, err := procs.NewSupervisor(procs.Options{Console: console, Workers: 2})
	if err != nil {
		return agent.RunResult{}, err
	}
	defer func() { _, _ = supervisor.Close(), console.Close() }()
	a, err := agent.New(agent.Options{
		Spec:       agent.WorkerSpec{LocalWorldSize: 2, Entrypoint: program, Args: args, MaxRestarts: 3},
		Rendezvous: rendezvous, Launcher: agent.ProcessLauncher{Supervisor: supervisor}, Env: os.Environ(),
		ShutdownTimeout: 30 * time.Second, RestartGrace: 30 * time.Second,
	})
	if err != nil {
		return agent.RunResult{}, err
	}
	return a.Run(ctx)
}
