package backends

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/etcd"
	"github.com/elasticrun/elasticrun/pkg/procs/guard"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
)

// Options are what a handler needs besides the configuration.
type Options struct {
	Version string
	Node    elastic.Node
	// Lifeline connects to the guard, which kills the workers if the agent cannot.
	Lifeline *guard.Lifeline
	// Status returns the agent's status, for elasticrun status.
	Status func(context.Context) []byte
	Logger zerolog.Logger
}

// Rendezvous is one node's part of a job's rendezvous. Close it.
type Rendezvous struct {
	Handler  rdzv.Handler
	identity *elastic.Identity // nil on one node
	log      zerolog.Logger
}

// Close shuts the handler down, which waits until the other nodes know how the job has ended, and gives up the
// identity.
func (r *Rendezvous) Close(ctx context.Context) {
	if err := r.Handler.Shutdown(ctx); err != nil {
		r.log.Warn().Err(err).Msg("the rendezvous was not shut down in order")
	}
	if r.identity != nil {
		_ = r.identity.Close()
	}
}

// Open claims an identity for this node and makes its handler. It connects to nothing yet. It sets o.Node.
func Open(ctx context.Context, cfg *config.Config, o Options) (*Rendezvous, error) {
	r := &Rendezvous{log: o.Logger}
	o.Node = elastic.Node{Host: "localhost", Identity: "one", Hint: -1}
	if cfg.MaxNodes > 1 {
		id, err := elastic.Identify(cfg.RunID, cfg.Rendezvous.Hint)
		if err != nil {
			return nil, err
		}
		r.identity = id
		o.Node = Node(cfg, elastic.Node{Host: id.Host, Identity: id.Name})
	}
	var err error
	if r.Handler, err = New(ctx, cfg, o); err != nil && r.identity != nil {
		_ = r.identity.Close()
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Node returns n with what the configuration says about this node.
func Node(cfg *config.Config, n elastic.Node) elastic.Node {
	n.Hint, n.Command = cfg.Rendezvous.Hint, commandID(cfg)
	n.Launch = elastic.Launch{ID: cfg.Rendezvous.LaunchID, Restarts: cfg.Rendezvous.LaunchRestarts}
	return n
}

// commandID returns a short hash that differs for different commands of workers. Every node's report has it.
func commandID(cfg *config.Config) string {
	program, args := cfg.Command("python")
	sum := sha256.Sum256([]byte(strings.Join(append([]string{program}, args...), "\x00")))
	return hex.EncodeToString(sum[:4])
}

// New returns the handler of the backend that cfg names. It connects to nothing.
func New(ctx context.Context, cfg *config.Config, o Options) (rdzv.Handler, error) {
	var registry rdzv.Registry
	for _, name := range []string{rdzv.BackendC10d, rdzv.BackendEtcd, rdzv.BackendStatic} {
		if err := registry.Register(name, &backend{name: name, cfg: cfg, Options: o}); err != nil {
			return nil, err
		}
	}
	params, err := rdzv.NewParameters(rdzv.Parameters{
		Backend: cfg.Rendezvous.Backend, Endpoint: cfg.Rendezvous.Endpoint, RunID: cfg.RunID,
		MinNodes: cfg.MinNodes, MaxNodes: cfg.MaxNodes, Config: cfg.Rendezvous.Conf,
	})
	var handler rdzv.Handler
	if err == nil {
		handler, err = registry.Create(ctx, params)
	}
	if err != nil {
		return nil, &config.UsageError{Where: "--rdzv-backend=" + cfg.Rendezvous.Backend, Problem: err.Error()}
	}
	return handler, nil
}

// backend is an rdzv.Creator. All backends run the same algorithm.
type backend struct {
	name string
	cfg  *config.Config
	Options
}

// etcdStatusInterval is how often an observed agent writes its status to etcd. etcd keeps every version of a value on
// its disk until it is compacted.
const etcdStatusInterval = 15 * time.Second

// advice is for jobs that have lost their store.
const advice = "a job survives the loss of any node if its rendezvous is not on one of them: " +
	"see elasticrun store, or --rdzv-backend=etcd"

// Create implements rdzv.Creator.
func (b *backend) Create(_ context.Context, p rdzv.Parameters) (rdzv.Handler, error) {
	r := b.cfg.Rendezvous
	o := elastic.Options{
		Backend: b.name, RunID: p.RunID, Job: b.job(), Node: b.Node, Watchdog: b.Lifeline.SetDeadline,
		AwaitGuard: b.awaitGuard, Logger: b.Logger,
		LeaveStores: b.cfg.ExitBarrierGiven, CloseTimeout: r.CloseTimeout,
		KeepAlive: min(r.KeepAliveInterval, r.TTL()/4), // so that one of several gets through before the workers are stopped
		Timeout:   min(r.HeartbeatTimeout, r.TTL()/3),
		Stores: elastic.WorkerStores{
			Addr: r.LocalAddr, Ports: elastic.Ports(r.WorkerStorePorts),
			WorkersHost: WorkerHostsStore(),
		},
	}
	if b.cfg.MaxNodes > 1 {
		o.Status, o.StatusInterval = b.Status, StatusInterval
	}
	o.SharedRunID = p.RunID == config.NoRunID
	if b.cfg.MaxNodes > 1 {
		o.Session = (&exitNotices{
			cfg: b.cfg, version: b.Version, lifeline: b.Lifeline, etcd: b.etcdOptions,
			log: b.Logger,
		}).session
	}
	if b.cfg.MaxNodes > 1 && b.name == rdzv.BackendEtcd {
		o.Access = &elastic.Elected{RunID: p.RunID, Dial: b.dialEtcd, Logger: b.Logger}
		o.Stores.Offers = b.offers(nil)
		o.StatusInterval = etcdStatusInterval
		return elastic.New(o), nil
	}
	access := &elastic.C10d{
		RunID: p.RunID, Version: b.Version, Secret: []byte(r.Secret.Reveal()), TTL: r.TTL(), SingleNode: b.cfg.MaxNodes == 1,
		IsHost: r.IsHost, Hint: r.Hint, Linger: linger(b.cfg), Logger: b.Logger,
	}
	if len(r.Endpoints) > 0 {
		access.Host, access.Ports = r.Endpoints[0].Host, r.Ports
		if len(r.Ports) == 0 { // the endpoint has one port, no candidates
			access.Ports = []int{r.Endpoints[0].Port}
		}
	}
	o.Access, o.Advice = access, advice
	o.Stores.Offers = b.offers(access)
	switch {
	case access.SingleNode: // every client is on this node, so no name has to be looked up
		o.Stores.Fixed = true
		if o.Stores.Addr == "" {
			o.Stores.Addr = rdzv.StaticMasterAddr
		}
	case b.name == rdzv.BackendStatic:
		host := r.Hint == 0
		access.IsHost, o.Stores.Fixed, o.Stores.Shared = &host, true, true
	}
	return elastic.New(o), nil
}

// linger returns how long the host of the store waits for the other nodes to read the result: --exit-barrier-timeout,
// but at least the TTL of sessions. After the TTL every node has read the result, or its session has expired.
func linger(cfg *config.Config) time.Duration {
	return max(cfg.ExitBarrierTimeout, cfg.Rendezvous.TTL())
}

// awaitGuard waits until the guard has reaped the workers of the last round, so that new ones may be started.
func (b *backend) awaitGuard(ctx context.Context) error {
	return b.Lifeline.AwaitGuard(ctx, func() {
		b.Logger.Warn().Int("guard", os.Getppid()).
			Msg("this node waits for its guard, which has not killed the old workers in time; " +
				"if the guard was stopped, for instance by Ctrl-Z, continue it with SIGCONT")
	})
}

// WorkerHostsStore reports whether the worker of rank 0 hosts the workers' store, as torchrun's variable asks for.
func WorkerHostsStore() bool { return os.Getenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") == "1" }

// job returns the parameters that all agents of a job must share.
func (b *backend) job() elastic.Job {
	r := b.cfg.Rendezvous
	return elastic.Job{
		Version: b.Version, Min: b.cfg.MinNodes, Max: b.cfg.MaxNodes, Expected: r.Expected,
		Static:      b.name == rdzv.BackendStatic && b.cfg.MaxNodes > 1,
		MaxRestarts: b.cfg.MaxRestarts, RestartWindow: r.RestartWindow, MaxNodeLosses: r.MaxNodeLosses,
		LastCall: r.LastCall, JoinTimeout: r.JoinTimeout, JoinSettle: r.JoinSettle,
		TTL: r.TTL(), Rejoin: max(r.RejoinTimeout, 2*r.TTL()), MinUptime: r.MinUptime, Grow: elastic.Grow(r.Grow),
		ResultTTL: r.ResultTTL,
	}
}

// offers returns the addresses at which this node's worker store may be reached, best first.
func (b *backend) offers(access *elastic.C10d) func() []string {
	return func() []string {
		ifaces, err := elastic.Interfaces()
		if err != nil {
			b.Logger.Warn().Err(err).Msg("the addresses of this node are not known")
		}
		return elastic.Offers(b.cfg.Rendezvous.LocalAddr, access.StoreAddr(), ifaces)
	}
}

// etcdOptions returns how to connect to etcd.
func (b *backend) etcdOptions() etcd.Options {
	r := b.cfg.Rendezvous
	scheme := "http://"
	if r.Etcd.TLS {
		scheme = "https://"
	}
	o := etcd.Options{
		TLS:  etcd.TLS{CA: r.Etcd.CACert, Cert: r.Etcd.Cert, Key: r.Etcd.Key},
		User: r.Etcd.User, Password: r.Etcd.Password.Reveal(), Prefix: r.Etcd.Prefix, TTL: r.TTL(), Logger: &b.Logger,
	}
	for _, e := range r.Endpoints {
		o.Endpoints = append(o.Endpoints, scheme+e.String())
	}
	return o
}

// dialEtcd opens a session in etcd.
func (b *backend) dialEtcd(ctx context.Context) (coord.Store, error) {
	store, err := etcd.Open(ctx, b.etcdOptions())
	if err != nil {
		return nil, err
	}
	return store, nil
}
