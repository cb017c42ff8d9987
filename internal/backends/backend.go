package backends

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/nearest"
	"github.com/elasticrun/elasticrun/pkg/coord/etcd"
	"github.com/elasticrun/elasticrun/pkg/procs/guard"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/backends"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// Options are what a handler needs besides the configuration.
type Options struct {
	Version string
	// Lifeline connects to the guard, which kills the workers if the agent cannot.
	Lifeline *guard.Lifeline
	// Status returns the agent's status, for elasticrun status.
	Status func(context.Context) []byte
	// Stacks is [elastic.Options.Stacks].
	Stacks func(ctx context.Context, r rounds.StacksRequest) []byte
	// Examine is [elastic.Options.Examine], HangFound [elastic.Options.HangFound].
	Examine   func(ctx context.Context, round int, nodes []rounds.NodeStacks) rounds.HangFinding
	HangFound func(*rounds.HangFound)
	// Waiting is called with what this node waits for, in words for people; empty if that is not known. It may be nil.
	Waiting func(why string)
	// StoreChanged is [elastic.Options.StoreChanged].
	StoreChanged func(*elastic.StoreState)
	Logger       zerolog.Logger

	users *elastic.StoreUsers // nil: those that the configuration names
}

// Rendezvous is one node's part of a job's rendezvous. Close it.
type Rendezvous struct {
	Handler  rdzv.Handler
	identity *machine.Identity // nil on one node
	users    *elastic.StoreUsers
	log      zerolog.Logger
}

// Refused returns why a store of this node refused a connection because of its user, or nil.
func (r *Rendezvous) Refused() error { return r.users.Refused() }

// Close shuts the handler down and releases the identity. The shutdown waits until the other nodes know how the job
// ended.
func (r *Rendezvous) Close(ctx context.Context) {
	if err := r.Handler.Shutdown(ctx); err != nil {
		r.log.Warn().Err(err).Msg("the rendezvous was not shut down in order")
	}
	if r.identity != nil {
		_ = r.identity.Close()
	}
}

// CloseRun closes the run for all nodes. by names who asks, in words for people. The error is an [*rdzv.EndedError] if
// the run had ended before or ended in another way, and [elastic.ErrNotJoined] if only this node ends. Workers may
// still be stopping when it returns.
func (r *Rendezvous) CloseRun(ctx context.Context, by string) error {
	known, _ := r.Handler.(interface{ Outcome() *rdzv.Outcome })
	if known != nil {
		if o := known.Outcome(); o != nil {
			return &rdzv.EndedError{Outcome: *o}
		}
	}
	if err := r.Handler.SetClosed(ctx, by); err != nil {
		return err
	}
	if known != nil {
		if o := known.Outcome(); o != nil && o.Ending != rdzv.EndClosed {
			return &rdzv.EndedError{Outcome: *o}
		}
	}
	return nil
}

// Open makes the handler of this node. If the job can have several nodes, it claims an identity for this node first. It
// connects to nothing yet.
func Open(ctx context.Context, cfg *config.Config, o Options) (*Rendezvous, error) {
	o.users = storeUsers(cfg)
	r := &Rendezvous{users: o.users, log: o.Logger}
	var err error
	if cfg.MaxNodes > 1 {
		if r.identity, err = machine.Identify(cfg.RunID, cfg.Rendezvous.Hint); err != nil {
			return nil, err
		}
	}
	if r.Handler, err = New(ctx, cfg, o, r.identity); err != nil && r.identity != nil {
		_ = r.identity.Close()
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Node returns n with the fields that follow from the configuration.
func Node(cfg *config.Config, n rounds.Node) rounds.Node {
	n.Hint, n.Command = cfg.Rendezvous.Hint, commandID(cfg)
	n.Launch = rounds.Launch{ID: cfg.Rendezvous.LaunchID, Restarts: cfg.Rendezvous.LaunchRestarts}
	return n
}

// commandID returns a short hash of the workers' command. Every node reports it, so that the leader can compare the
// commands.
func commandID(cfg *config.Config) string {
	program, args := cfg.Command("python")
	sum := sha256.Sum256([]byte(strings.Join(append([]string{program}, args...), "\x00")))
	return hex.EncodeToString(sum[:4])
}

// New returns the handler of the backend that cfg names. It connects to nothing. With a nil identity it uses a
// placeholder and creates no folder, so the handler may join only if the job has one node; for other jobs New then only
// checks the configuration. An unusable configuration is a *config.UsageError.
func New(ctx context.Context, cfg *config.Config, o Options, id *machine.Identity) (rdzv.Handler, error) {
	used := id != nil
	if !used {
		id = &machine.Identity{Host: "localhost", Name: "one"}
	}
	socket, err := localSocket(cfg, used)
	if err != nil {
		return nil, err
	}
	params := parameters(cfg.Rendezvous, cfg.RunID, cfg.MinNodes, cfg.MaxNodes)
	creation := options(cfg, o, id)
	creation.Socket = socket
	handler, err := backends.New(ctx, params, creation)
	if err != nil {
		problem, known := err.Error(), []string{rdzv.BackendC10d, rdzv.BackendEtcd, rdzv.BackendStatic}
		near := nearest.Of(cfg.Rendezvous.Backend, known)
		if near != "" && !slices.Contains(known, cfg.Rendezvous.Backend) {
			problem += "; the nearest is " + near
		}
		return nil, &config.UsageError{Where: cfg.Where("rdzv-backend"), Problem: problem}
	}
	return handler, nil
}

// parameters returns the parameters of a rendezvous. The endpoint has the addresses that this node has resolved.
func parameters(r config.Rendezvous, runID string, minNodes, maxNodes int) rdzv.Parameters {
	p := rdzv.Parameters{
		Backend: r.Backend, Endpoint: r.Endpoint, RunID: runID, MinNodes: minNodes, MaxNodes: maxNodes,
	}
	var endpoints []string
	for _, at := range r.Endpoints {
		endpoints = append(endpoints, at.String())
	}
	if len(endpoints) > 0 {
		p.Endpoint = strings.Join(endpoints, ",")
	}
	if r.Hint >= 0 {
		p.Config = map[string]string{"rank": strconv.Itoa(r.Hint)}
	}
	return p
}

// etcdStatusInterval is how often an observed agent writes its status to etcd. etcd keeps every version of a value on
// its disk until it is compacted.
const etcdStatusInterval = 15 * time.Second

// multipleOf returns [rounds.Job.Multiple], where 0 means any number of nodes.
func multipleOf(n int) int {
	if n <= 1 {
		return 0
	}
	return n
}

// options returns the options of package pkg/rdzv/backends for this node.
func options(cfg *config.Config, o Options, id *machine.Identity) backends.Options {
	r := cfg.Rendezvous
	return backends.Options{
		Job: rounds.Job{
			Version: o.Version, MaxRestarts: cfg.MaxRestarts, RestartWindow: r.RestartWindow, MaxNodeLosses: r.MaxNodeLosses,
			MinUptime: r.MinUptime, Grow: rounds.Grow(r.Grow), Rejoin: r.RejoinTimeout, Expected: r.Expected,
			Multiple: multipleOf(cfg.NodesMultiple), PreemptGrace: cfg.PreemptGrace,
			Policy: rounds.Policy{
				FinalCodes: cfg.FinalCodes, ExcludeCodes: cfg.ExcludeNodeCodes,
				MaxSame: cfg.MaxSameFailures, MaxIdle: cfg.MaxIdleRestarts,
			},
			Hangs: rounds.Hangs{
				Auto: cfg.HangTimeout.Auto, Timeout: cfg.HangTimeout.After, Action: rounds.HangAction(cfg.HangAction),
			},
		},
		Secret: []byte(r.Secret.Reveal()), Settings: &r.Settings, ServerNames: r.StoreNames(),
		LocalAddr: r.LocalAddr, WorkerStorePorts: machine.Ports(r.WorkerStorePorts), WorkersHost: WorkerHostsStore(),
		StoreUsers: cmp.Or(o.users, storeUsers(cfg)), Ports: r.Ports,
		OwnEndpoint: r.OwnEndpoint, AdviseEndpoints: cfg.ChoosesEndpoints(), Identity: id, Command: commandID(cfg),
		Launch: rounds.Launch{ID: r.LaunchID, Restarts: r.LaunchRestarts},
		Linger: max(cfg.ExitBarrierTimeout, r.TTL()), Logger: o.Logger,
		Configure: func(e *elastic.Options) { o.configure(cfg, e) },
	}
}

// storeUsers returns the users that this node's stores serve.
func storeUsers(cfg *config.Config) *elastic.StoreUsers {
	users := cfg.Rendezvous.StoreUsers
	return &elastic.StoreUsers{Anybody: users.Anybody, IDs: users.IDs}
}

// configure adds what only this program has: the guard, its exit notices, and status for observers.
func (o Options) configure(cfg *config.Config, e *elastic.Options) {
	e.Watchdog, e.AwaitGuard = o.Lifeline.SetDeadline, o.awaitGuard
	e.LeaveStores, e.Waiting, e.StoreChanged = cfg.ExitBarrierGiven, o.Waiting, o.StoreChanged
	e.SharedRunID = cfg.RunID == config.NoRunID
	if cfg.HangTimeout != (config.HangTimeout{}) {
		e.Stacks, e.Examine, e.HangFound = o.Stacks, o.Examine, o.HangFound
	}
	if cfg.MaxNodes == 1 {
		return
	}
	if cfg.Rendezvous.Local && !cfg.Given("rdzv-id") {
		e.WaitAdvice = fmt.Sprintf("without --rdzv-id only the same command in the same folder is this job (run id %s): "+
			"give the same --rdzv-id=ID in each terminal to join with other arguments", cfg.RunID)
	}
	if !cfg.Rendezvous.Local && cfg.Given("rdzv-endpoint") && cfg.Given("rdzv-id") {
		e.WaitAdvice = fmt.Sprintf("the others need the same --rdzv-endpoint=%s --rdzv-id=%s", cfg.Rendezvous.Endpoint,
			cfg.RunID)
	}
	e.Status, e.Stacks, e.StatusInterval = o.Status, o.Stacks, StatusInterval
	if e.Backend == rdzv.BackendEtcd {
		e.StatusInterval = etcdStatusInterval
	}
	notices := &exitNotices{
		runID: cfg.RunID, r: cfg.Rendezvous, version: o.Version, lifeline: o.Lifeline, log: o.Logger,
	}
	if access, ok := e.Access.(*elastic.C10d); ok {
		notices.access, access.Store = access, o.Lifeline.SetRecord // the guard gets what another agent needs to take over
		if e.SharedRunID {
			access.Label = e.Node.Command
		}
	}
	e.Session = notices.session
}

// awaitGuard waits until the guard has reaped the workers of the last round, so that new workers may start.
func (o Options) awaitGuard(ctx context.Context) error {
	return o.Lifeline.AwaitGuard(ctx, func() {
		o.Logger.Warn().Int("guard", os.Getppid()).
			Msg("this node waits for its guard, which has not killed the old workers in time; " +
				"if the guard was stopped, for instance by Ctrl-Z, continue it with SIGCONT")
	})
}

// WorkerHostsStore reports whether the worker of rank 0 hosts the workers' store, as torchrun's variable asks for.
func WorkerHostsStore() bool { return os.Getenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") == "1" }

// etcdOptions returns how to connect to etcd.
func etcdOptions(r config.Rendezvous, runID string, log zerolog.Logger) (etcd.Options, error) {
	return backends.EtcdOptions(backends.Options{Settings: &r.Settings, Logger: log}, parameters(r, runID, 1, 1))
}
