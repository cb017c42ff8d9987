package rdzv_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/backends"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// runJob runs one node of a job with two workers, of which one fails once.
func runJob(registry *rdzv.Registry, p rdzv.Parameters) (agent.RunResult, error) {
	ctx := context.Background()
	handler, err := registry.Create(ctx, p)
	if err != nil {
		return agent.RunResult{}, err
	}
	defer handler.Shutdown(ctx)
	supervisor, err := procs.NewSupervisor(procs.Options{Workers: 2})
	if err != nil {
		return agent.RunResult{}, err
	}
	defer supervisor.Close()
	a, err := agent.New(agent.Options{
		Spec: agent.WorkerSpec{
			LocalWorldSize: 2, MaxRestarts: 1,
			Entrypoint: "sh", Args: []string{"-c", "test $RANK = 0 || exit $((3 * (1 - TORCHELASTIC_RESTART_COUNT)))"},
		},
		Rendezvous: handler, Launcher: agent.ProcessLauncher{Supervisor: supervisor}, Env: os.Environ(),
		ShutdownTimeout: 10 * time.Second, RestartGrace: 10 * time.Second,
	})
	if err != nil {
		return agent.RunResult{}, err
	}
	return a.Run(ctx)
}

// A job over one of elasticrun's backends. With MaxNodes above 1 and an Endpoint, each node runs this.
func ExampleRegistry() {
	var registry rdzv.Registry
	if err := backends.Register(&registry, backends.Options{Job: rounds.Job{MaxRestarts: 1}}); err != nil {
		panic(err)
	}
	result, err := runJob(&registry, rdzv.Parameters{
		Backend: rdzv.BackendC10d, RunID: "job7", MinNodes: 1, MaxNodes: 1,
		Config: map[string]string{"join_timeout": "60"}, // torchrun's --rdzv-conf
	})
	fmt.Printf("%v after %d restart, error: %v\n", result.State, result.Restarts, err)
	// Output: SUCCEEDED after 1 restart, error: <nil>
}

// sharedStore is a backend for a fixed number of nodes that share a store of any kind. It has no leader: every node
// takes the same decisions from what it reads.
type sharedStore struct{ store kvstore.Store }

// Create implements rdzv.Creator.
func (s sharedStore) Create(_ context.Context, p rdzv.Parameters) (rdzv.Handler, error) {
	maxRestarts, err := p.Int("max_restarts", 0)
	if err != nil {
		return nil, err
	}
	return &sharedHandler{Parameters: p, store: s.store, maxRestarts: maxRestarts, stops: make(chan rdzv.Stop)}, nil
}

// sharedHandler is one node's part.
type sharedHandler struct {
	rdzv.Parameters
	store       kvstore.Store
	maxRestarts int
	rounds      int
	stops       chan rdzv.Stop // another program would send when a node fails
	closed      bool
}

func (h *sharedHandler) Backend() string                { return h.Parameters.Backend }
func (h *sharedHandler) RunID() string                  { return h.Parameters.RunID }
func (h *sharedHandler) Stops() <-chan rdzv.Stop        { return h.stops }
func (h *sharedHandler) Quiet(*rdzv.Quiet)              {}
func (h *sharedHandler) Started()                       {}
func (h *sharedHandler) Stepped(rdzv.Steps)             {}
func (h *sharedHandler) Used() (*goodput.Goodput, bool) { return nil, false }
func (h *sharedHandler) Preempt(rdzv.Preemption)        {}
func (h *sharedHandler) Stopped()                       {}
func (h *sharedHandler) Fail(rdzv.Failure)              {}
func (h *sharedHandler) Leave()                         {}
func (h *sharedHandler) NumNodesWaiting() int           { return 0 }

// NextRendezvous waits for all nodes. Each round but the first is a charged restart.
func (h *sharedHandler) NextRendezvous(ctx context.Context, self rdzv.Member) (*rdzv.Round, error) {
	if h.rounds > h.maxRestarts {
		return nil, &rdzv.EndedError{Outcome: rdzv.Outcome{Ending: rdzv.EndFailed, Cause: self.Failure}}
	}
	round := h.rounds
	h.rounds++
	prefix := fmt.Sprintf("%s/round/%d/", h.Parameters.RunID, round)
	arrived, err := h.store.Add(ctx, prefix+"arrived", 1)
	if err != nil {
		return nil, err
	}
	rank := int(arrived) - 1
	text, err := json.Marshal(self)
	if err != nil {
		return nil, err
	}
	texts, err := kvstore.Synchronize(ctx, h.store, text, rank, h.MaxNodes, prefix+"node", 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rdzv.ErrConnection, err)
	}
	members := make([]rdzv.Member, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal(text, &members[i]); err != nil {
			return nil, fmt.Errorf("%w: %w", rdzv.ErrState, err)
		}
	}
	return &rdzv.Round{
		Number: round, Rank: rank, WorldSize: len(members), Restarts: round, Assignment: rdzv.Assign(members)[rank],
		MasterAddr: rdzv.StaticMasterAddr, MasterPort: rdzv.StaticMasterPort, // the worker of rank 0 hosts the store
	}, nil
}

// Succeed is torch's exit barrier.
func (h *sharedHandler) Succeed(ctx context.Context, barrier time.Duration) (*rdzv.Stop, error) {
	err := kvstore.Barrier(ctx, h.store, kvstore.BarrierOptions{
		WorldSize: h.MaxNodes, Prefix: h.Parameters.RunID + "/exit/" + strconv.Itoa(h.rounds),
		Timeout: max(barrier, 1), // 0 would be the default
	})
	if errors.Is(err, kvstore.ErrTimeout) {
		err = fmt.Errorf("%w: %w", rdzv.ErrTimeout, err)
	}
	return nil, err
}

func (h *sharedHandler) IsClosed(context.Context) (bool, error)  { return h.closed, nil }
func (h *sharedHandler) SetClosed(context.Context, string) error { h.closed = true; return nil }
func (h *sharedHandler) Shutdown(context.Context) error          { return nil }

// A job over a backend of one's own, which is registered beside elasticrun's.
func ExampleRegistry_Register() {
	var registry rdzv.Registry
	if err := backends.Register(&registry, backends.Options{}); err != nil {
		panic(err)
	}
	if err := registry.Register("shared", sharedStore{store: kvstore.NewHashStore()}); err != nil {
		panic(err)
	}
	fmt.Println(registry.Backends())
	result, err := runJob(&registry, rdzv.Parameters{
		Backend: "shared", RunID: "job8", MinNodes: 1, MaxNodes: 1, Config: map[string]string{"max_restarts": "1"},
	})
	fmt.Printf("%v after %d restart, error: %v\n", result.State, result.Restarts, err)
	// Output:
	// [c10d etcd shared static]
	// SUCCEEDED after 1 restart, error: <nil>
}
