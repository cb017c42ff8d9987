package agent_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// oneNode is the rendezvous of a job on one node. Package rdzv/elastic has the real one.
type oneNode struct{ rounds, maxRestarts int }

func (*oneNode) Backend() string                { return "example" }
func (*oneNode) RunID() string                  { return "job7" }
func (*oneNode) Stops() <-chan rdzv.Stop        { return nil }
func (*oneNode) Quiet(*rdzv.Quiet)              {}
func (*oneNode) Started()                       {}
func (*oneNode) Stepped(rdzv.Steps)             {}
func (*oneNode) Used() (*goodput.Goodput, bool) { return nil, false }
func (*oneNode) Preempt(rdzv.Preemption)        {}
func (*oneNode) Stopped()                       {}
func (*oneNode) Fail(rdzv.Failure)              {}
func (*oneNode) Leave()                         {}

// NextRendezvous charges a restart for each failure, and ends the job when no restart is left.
func (n *oneNode) NextRendezvous(_ context.Context, self rdzv.Member) (*rdzv.Round, error) {
	if n.rounds > n.maxRestarts {
		return nil, &rdzv.EndedError{Outcome: rdzv.Outcome{
			Ending: rdzv.EndFailed, Cause: self.Failure,
			Restarts: n.maxRestarts,
		}}
	}
	n.rounds++
	return &rdzv.Round{
		Number: n.rounds - 1, WorldSize: 1, Restarts: n.rounds - 1, Assignment: rdzv.Assign([]rdzv.Member{self})[0],
		MasterAddr: "localhost", MasterPort: 29500,
	}, nil
}

func (*oneNode) Succeed(context.Context, time.Duration) (*rdzv.Stop, error) { return nil, nil }

// printer is a sink that prints the rounds and failures of the event stream.
type printer struct{}

func (printer) Emit(e events.Event) {
	switch e.Kind {
	case events.KindRound:
		fmt.Printf("round %d (%s): %d workers\n", *e.Round, e.Verdict, e.WorldSize)
	case events.KindFailure:
		fmt.Printf("rank %d failed: %s\n", *e.Rank, e.Summary)
	}
}

// Run two workers that fail once and succeed after a restart.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	logs, err := workerlog.OpenLogDir(dir, "job7")
	if err != nil {
		panic(err)
	}
	sup, err := procs.NewSupervisor(procs.Options{Workers: 2})
	if err != nil {
		panic(err)
	}
	a, err := agent.New(agent.Options{
		Spec: agent.WorkerSpec{
			Role: "default", LocalWorldSize: 2, MaxRestarts: 1,
			Entrypoint: "sh", Args: []string{"-c", "test $RANK = 0 || exit $((3 * (1 - TORCHELASTIC_RESTART_COUNT)))"},
		},
		Rendezvous: &oneNode{maxRestarts: 1}, Launcher: agent.ProcessLauncher{Supervisor: sup}, LogFolders: logs,
		Env:    os.Environ(),
		Events: printer{}, ShutdownTimeout: 10 * time.Second, RestartGrace: 10 * time.Second,
	})
	if err != nil {
		panic(err)
	}
	result, err := a.Run(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Printf("%v after %d restart\n", result.State, result.Restarts)
	if err := sup.Close(); err != nil {
		panic(err)
	}
	// Output:
	// round 0 (first): 2 workers
	// rank 1 failed: exited with code 3
	// round 1 (restart): 2 workers
	// SUCCEEDED after 1 restart
}
