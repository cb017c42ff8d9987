package main

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

// meeting is what one agent needs to meet the others of its job.
type meeting struct {
	handler  rdzv.Handler
	identity *elastic.Identity // nil on one node
}

// close gives all of it back, after the others have heard of the job's end.
func (m *meeting) close(ctx context.Context, log zerolog.Logger) {
	if err := m.handler.Shutdown(ctx); err != nil {
		log.Warn().Err(err).Msg("shutting down the rendezvous")
	}
	if m.identity != nil {
		_ = m.identity.Close()
	}
}

// rendezvous prepares to meet the others. Nothing is connected yet.
func rendezvous(ctx context.Context, cfg *config.Config, lifeline *guard.Lifeline, seen *lookout, log zerolog.Logger) (*meeting, error) {
	m := &meeting{}
	node := elastic.Node{Host: "localhost", Identity: "one", Hint: -1}
	if cfg.MaxNodes > 1 {
		id, err := elastic.Identify(cfg.RunID, cfg.Rendezvous.Hint)
		if err != nil {
			return nil, err
		}
		m.identity = id
		node = nodeOf(cfg, elastic.Node{Host: id.Host, Identity: id.Name})
	}
	var err error
	if m.handler, err = handlerOf(ctx, cfg, node, lifeline, seen, log); err != nil && m.identity != nil {
		_ = m.identity.Close()
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// nodeOf adds to what the machine says of a node what the configuration says of it.
func nodeOf(cfg *config.Config, n elastic.Node) elastic.Node {
	n.Hint, n.Command = cfg.Rendezvous.Hint, commandID(cfg)
	n.Launch = elastic.Launch{ID: cfg.Rendezvous.LaunchID, Restarts: cfg.Rendezvous.LaunchRestarts}
	return n
}

// commandID tells the commands of workers apart: it is short, as each node's report has it.
func commandID(cfg *config.Config) string {
	program, args := cfg.Command("python")
	sum := sha256.Sum256([]byte(strings.Join(append([]string{program}, args...), "\x00")))
	return hex.EncodeToString(sum[:4])
}

// handlerOf makes the handler of the backend that is asked for. It opens nothing.
func handlerOf(ctx context.Context, cfg *config.Config, node elastic.Node, lifeline *guard.Lifeline, seen *lookout, log zerolog.Logger) (rdzv.Handler, error) {
	var registry rdzv.Registry
	for _, name := range []string{rdzv.BackendC10d, rdzv.BackendEtcd, rdzv.BackendStatic} {
		if err := registry.Register(name, &backend{name: name, cfg: cfg, node: node, lifeline: lifeline, seen: seen, log: log}); err != nil {
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

// backend creates the handler of one backend; all run the same algorithm.
type backend struct {
	name string
	cfg  *config.Config
	node elastic.Node
	// lifeline leads to the guard, which kills the workers of an agent that cannot.
	lifeline *guard.Lifeline
	// seen says what the agent is doing.
	seen *lookout
	log  zerolog.Logger
}

// etcdStatusInterval is how often an agent that is looked at writes into etcd, which keeps every version on its disk until it is compacted.
const etcdStatusInterval = 15 * time.Second

// advice is for jobs that have lost their store.
const advice = "a job goes on without any of its nodes if its rendezvous is not on one of them: see elasticrun store, or --rdzv-backend=etcd"

// Create implements rdzv.Creator.
func (b *backend) Create(_ context.Context, p rdzv.Parameters) (rdzv.Handler, error) {
	r := b.cfg.Rendezvous
	o := elastic.Options{
		Backend: b.name, RunID: p.RunID, Job: b.job(), Node: b.node, Watchdog: b.lifeline.Deadline, AwaitGuard: b.awaitGuard, Logger: b.log,
		KeepAlive: min(r.KeepAliveInterval, r.TTL()/4), // of a few that are lost, one arrives before the workers are stopped
		Timeout:   min(r.HeartbeatTimeout, r.TTL()/3),
		Stores: elastic.WorkerStores{
			Addr: r.LocalAddr, Ports: elastic.Ports(r.WorkerStorePorts),
			WorkersHost: workersHost(),
		},
	}
	if b.cfg.MaxNodes > 1 {
		o.Status, o.StatusInterval = b.seen.brief, statusInterval
	}
	o.SharedRunID = p.RunID == config.NoRunID
	if b.cfg.MaxNodes > 1 {
		o.Session = (&exitNotices{cfg: b.cfg, lifeline: b.lifeline, etcd: b.etcdOptions, log: b.log}).session
	}
	if b.cfg.MaxNodes > 1 && b.name == rdzv.BackendEtcd {
		o.Access = &elastic.Elected{RunID: p.RunID, Dial: b.dialEtcd, Logger: b.log}
		o.Stores.Offers = b.offers(nil)
		o.StatusInterval = etcdStatusInterval
		return elastic.New(o), nil
	}
	access := &elastic.C10d{
		RunID: p.RunID, Version: version, Secret: []byte(r.Secret.Reveal()), TTL: r.TTL(), SingleNode: b.cfg.MaxNodes == 1,
		IsHost: r.IsHost, Hint: r.Hint, Linger: linger(b.cfg), Logger: b.log,
	}
	if len(r.Endpoints) > 0 {
		access.Host, access.Ports = r.Endpoints[0].Host, r.Ports
		if len(r.Ports) == 0 { // not a matter of candidates
			access.Ports = []int{r.Endpoints[0].Port}
		}
	}
	o.Access, o.Advice = access, advice
	o.Stores.Offers = b.offers(access)
	switch {
	case access.SingleNode: // every client is local, and needs no name resolution
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

// linger is how long the host of the store waits until the other nodes have read the result. --exit-barrier-timeout may make it longer. It is never
// shorter than the sessions' TTL: after that time every node has read the result, or its session has ended.
func linger(cfg *config.Config) time.Duration {
	return max(cfg.ExitBarrierTimeout, cfg.Rendezvous.TTL())
}

// awaitGuard returns once the guard lets workers be started again.
func (b *backend) awaitGuard(ctx context.Context) error {
	return b.lifeline.AwaitGuard(ctx, func() {
		b.log.Warn().Int("guard", os.Getppid()).Msg("this node waits for its guard, which has not ended the old workers in time: was it stopped, by Ctrl-Z for instance?")
	})
}

// workersHost tells whether the workers' store is a worker's matter, by torchrun's variable.
func workersHost() bool { return os.Getenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") == "1" }

// job is what all agents must agree on.
func (b *backend) job() elastic.Job {
	r := b.cfg.Rendezvous
	return elastic.Job{
		Version: version, Min: b.cfg.MinNodes, Max: b.cfg.MaxNodes, Expected: r.Expected,
		Static:      b.name == rdzv.BackendStatic && b.cfg.MaxNodes > 1,
		MaxRestarts: b.cfg.MaxRestarts, RestartWindow: r.RestartWindow, MaxNodeLosses: r.MaxNodeLosses,
		LastCall: r.LastCall, JoinTimeout: r.JoinTimeout, JoinSettle: r.JoinSettle,
		TTL: r.TTL(), Rejoin: max(r.RejoinTimeout, 2*r.TTL()), MinUptime: r.MinUptime, Grow: elastic.Grow(r.Grow), ResultTTL: r.ResultTTL,
	}
}

// offers lists where this node's worker store can be reached, as far as is known by then.
func (b *backend) offers(access *elastic.C10d) func() []string {
	return func() []string {
		ifaces, err := elastic.Interfaces()
		if err != nil {
			b.log.Warn().Err(err).Msg("looking for this node's addresses")
		}
		return elastic.Offers(b.cfg.Rendezvous.LocalAddr, access.StoreAddr(), ifaces)
	}
}

// etcdOptions says which etcd, and how to use it.
func (b *backend) etcdOptions() etcd.Options {
	r := b.cfg.Rendezvous
	scheme := "http://"
	if r.Etcd.TLS {
		scheme = "https://"
	}
	o := etcd.Options{
		TLS:  etcd.TLS{CA: r.Etcd.CACert, Cert: r.Etcd.Cert, Key: r.Etcd.Key},
		User: r.Etcd.User, Password: r.Etcd.Password.Reveal(), Prefix: r.Etcd.Prefix, TTL: r.TTL(), Logger: &b.log,
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
