package backends

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/etcd"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

// Register registers c10d, etcd and static.
func Register(r *rdzv.Registry, o Options) error {
	for _, name := range []string{rdzv.BackendC10d, rdzv.BackendEtcd, rdzv.BackendStatic} {
		if err := r.Register(name, creator{options: &o}); err != nil {
			return err
		}
	}
	return nil
}

// New returns a handler of one of these backends. It is Create of a registry that has no other ones.
func New(ctx context.Context, p rdzv.Parameters, o Options) (rdzv.Handler, error) {
	var registry rdzv.Registry
	if err := Register(&registry, o); err != nil {
		return nil, err
	}
	return registry.Create(ctx, p)
}

// creator is the [rdzv.Creator] of all three backends, which run the same algorithm.
type creator struct{ options *Options }

// advice is for jobs that have lost their store.
const advice = "a job survives the loss of any node if its rendezvous is not on one of them: " +
	"see elasticrun store, or --rdzv-backend=etcd"

// aloneAdvice is for jobs that have lost their store because only one agent was to keep it.
const aloneAdvice = "without voters=1 in --rdzv-conf a job of three or more nodes survives the loss of any one of " +
	"them; a rendezvous on other machines survives more: see elasticrun store, or --rdzv-backend=etcd"

// togetherAdvice is for jobs that have lost the store which the agents keep together.
const togetherAdvice = "a job survives the loss of any one node at a time, once three nodes keep its store; a " +
	"rendezvous on other machines survives more: see elasticrun store, or --rdzv-backend=etcd"

// storeAdvice is for jobs that have lost a store which is not on one of their nodes.
const storeAdvice = "a job waits for its store as long as join_timeout: run elasticrun store as a service that is " +
	"started again, with --data-dir, or use --rdzv-backend=etcd"

// Create implements [rdzv.Creator].
func (c creator) Create(_ context.Context, p rdzv.Parameters) (rdzv.Handler, error) {
	in, err := c.options.read(p)
	if err != nil {
		return nil, err
	}
	id := c.options.Identity
	if id != nil || in.MaxNodes == 1 {
		return elastic.New(c.options.handler(in, cmp.Or(id, &machine.Identity{Host: "localhost", Name: "one"}))), nil
	}
	if id, err = machine.Identify(p.RunID, in.rank); err != nil {
		return nil, err
	}
	return &identified{Handler: elastic.New(c.options.handler(in, id)), identity: id}, nil
}

// identified is a handler that holds the identity of its node.
type identified struct {
	*elastic.Handler
	identity *machine.Identity
	release  sync.Once
}

// Shutdown implements [rdzv.Handler].
func (h *identified) Shutdown(ctx context.Context) error {
	err := h.Handler.Shutdown(ctx)
	h.release.Do(func() { err = errors.Join(err, h.identity.Close()) })
	return err
}

// handler returns the options of a handler.
func (o *Options) handler(in input, id *machine.Identity) elastic.Options {
	users := cmp.Or(o.StoreUsers, &elastic.StoreUsers{})
	out := elastic.Options{
		Backend: in.Backend, RunID: in.RunID, Job: o.job(in), Logger: o.Logger,
		Node: rounds.Node{
			Host: id.Host, Identity: id.Name, Hint: in.rank, Launch: o.Launch, Command: o.Command,
		},
		CloseTimeout: in.CloseTimeout,
		// So that one of several keep-alives gets through before the workers are stopped.
		KeepAlive: min(in.KeepAliveInterval, in.TTL()/4),
		Timeout:   in.RequestTimeout(),
		Stores: elastic.WorkerStores{
			Addr: o.LocalAddr, Ports: o.WorkerStorePorts, WorkersHost: o.WorkersHost, Users: users,
		},
	}
	if in.MaxNodes == 1 {
		out.Node.Hint = -1
	}
	if in.MaxNodes > 1 && in.Backend == rdzv.BackendEtcd {
		out.Access = &elastic.Elected{RunID: in.RunID, Dial: dialEtcd(o.etcd(in)), Logger: o.Logger}
		out.Stores.Offers = o.offers(nil)
	} else {
		o.c10d(in, &out, users)
	}
	if o.Configure != nil {
		o.Configure(&out)
	}
	return out
}

// c10d completes the options of a handler for elasticrun's own store.
func (o *Options) c10d(in input, out *elastic.Options, users *elastic.StoreUsers) {
	access := &elastic.C10d{
		RunID: in.RunID, Version: o.Job.Version, Secret: o.Secret, TTL: in.TTL(), SingleNode: in.MaxNodes == 1,
		Certificates: in.certificates, ServerNames: o.ServerNames,
		IsHost: in.IsHost, Hint: in.rank, Linger: max(cmp.Or(o.Linger, defaultLinger), in.TTL()), Logger: o.Logger,
		Users: users,
	}
	if len(in.endpoints) > 0 {
		access.Host, access.Ports = in.endpoints[0].host, o.Ports
		if len(access.Ports) == 0 {
			access.Ports = []int{in.endpoints[0].port}
		}
	}
	out.Access, out.Advice, out.StoreAdvice = access, advice, storeAdvice
	out.Stores.Offers = o.offers(access)
	switch {
	case access.SingleNode: // every client is on this node, so no name has to be looked up
		out.Stores.Fixed, out.Stores.OneNode = true, true
		out.Stores.Addr = cmp.Or(out.Stores.Addr, rdzv.StaticMasterAddr)
	case in.Backend == rdzv.BackendC10d && o.Socket != "":
		access.Socket = o.Socket
		out.Stores.Addr = cmp.Or(out.Stores.Addr, rdzv.StaticMasterAddr) // not Fixed: a container may have its own loopback
	case in.Backend == rdzv.BackendC10d && rdzvconf.OnlyHere(in.endpoints[0].host, in.IsHost):
		out.Stores.Addr = cmp.Or(out.Stores.Addr, rdzv.StaticMasterAddr)
	case in.Backend == rdzv.BackendStatic:
		host := in.rank == 0
		access.IsHost, access.ServesWorkers, out.Stores.Fixed, out.Stores.Shared = &host, true, true, true
	case in.MaxNodes > 1 && in.Voters > 1:
		access.Voters, access.LaunchID = in.Voters, o.Launch.ID
		access.MinNodes, access.MaxNodes = in.MinNodes, in.MaxNodes
		access.LocalAddr, access.MemberPorts = o.LocalAddr, o.WorkerStorePorts
		access.More, access.AdviseEndpoints = o.furtherHosts(in), o.AdviseEndpoints
		out.Advice = togetherAdvice
	case in.MaxNodes > 1:
		out.Advice = aloneAdvice
	}
}

// furtherHosts returns the endpoints after the first one.
func (o *Options) furtherHosts(in input) []elastic.StoreHost {
	var hosts []elastic.StoreHost
	for i, at := range in.endpoints[1:] {
		h := elastic.StoreHost{Host: at.host, Ports: o.Ports}
		if len(h.Ports) < 2 { // no candidates that hold for all
			h.Ports = []int{at.port}
		}
		if o.OwnEndpoint != nil {
			own := *o.OwnEndpoint == i+1
			h.IsHost = &own
		}
		hosts = append(hosts, h)
	}
	return hosts
}

// offers returns the addresses at which this node's worker store may be reached, best first.
func (o *Options) offers(access *elastic.C10d) func() []string {
	return func() []string {
		ifaces, err := machine.Interfaces()
		if err != nil {
			o.Logger.Warn().Err(err).Msg("the addresses of this node are not known")
		}
		return machine.Offers(o.LocalAddr, access.StoreAddr(), ifaces)
	}
}

// EtcdOptions returns how the etcd backend connects with these parameters. It is for programs that need a session of
// their own beside the handler's.
func EtcdOptions(o Options, p rdzv.Parameters) (etcd.Options, error) {
	in, err := o.read(p)
	if err != nil {
		return etcd.Options{}, err
	}
	return o.etcd(in), nil
}

func (o *Options) etcd(in input) etcd.Options {
	scheme := "http://"
	if in.Etcd.TLS {
		scheme = "https://"
	}
	out := etcd.Options{
		TLS:  etcd.TLS{CA: in.Etcd.CACert, Cert: in.Etcd.Cert, Key: in.Etcd.Key},
		User: in.Etcd.User, Password: in.Etcd.Password.Reveal(), Prefix: in.Etcd.Prefix, TTL: in.TTL(), Logger: &o.Logger,
	}
	for _, at := range in.endpoints {
		out.Endpoints = append(out.Endpoints, scheme+at.String())
	}
	return out
}

// dialEtcd returns a function that opens a session in etcd.
func dialEtcd(o etcd.Options) func(context.Context) (coord.Store, error) {
	return func(ctx context.Context) (coord.Store, error) {
		store, err := etcd.Open(ctx, o)
		if err != nil {
			return nil, err
		}
		return store, nil
	}
}
