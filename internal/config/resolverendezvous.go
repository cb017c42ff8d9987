package config

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/internal/scheduler"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

// anyPort is the endpoint of a rendezvous whose port the launcher chooses.
const anyPort = "localhost:0"

// NoRunID is the run id of jobs that were given none. Several jobs may have it.
const NoRunID = "none"

// isKnown reports whether this package checks the backend's endpoint and options.
func isKnown(backend string) bool {
	return backend == rdzv.BackendC10d || backend == rdzv.BackendStatic || backend == rdzv.BackendEtcd
}

// rendezvousFlags are the flags that say where nodes meet. Empty text means not given.
type rendezvousFlags struct {
	Standalone               bool
	MaxNodes                 int
	Backend, Endpoint, RunID string
	MasterAddr               string // without brackets
	MasterPort               int    // -1: not given
	NodeRankGiven            bool
	LocalAddr                string
	LocalRunID               func() string // the default run id of a local endpoint
	OneMachine               bool          // all agents are known to be on this machine
	NoEndpoint               string        // the scheduler's explanation of a missing endpoint
	// Try returns this command line with endpoints: one for agents on this machine, one for several machines.
	Try func() []string
}

// rendezvousPoint is what follows from rendezvousFlags.
type rendezvousPoint struct {
	Backend, Endpoint, RunID string
	MasterAddr               string
	MasterPort               int
}

// point applies the defaults that depend on several flags:
//
//	--standalone          c10d on a free port, a fresh run id
//	no backend            c10d; static if the flags of static are given and there may be several nodes
//	c10d on one node      endpoint and worker store on free ports; without --rdzv-backend,
//	                      --master-addr and --master-port place the worker store
//	static                the endpoint is the master address; unset, it is 127.0.0.1 and
//	                      a free port on one node, else 29500
//	no run id             a fresh one on one node, where no other node needs to know it; that of the command
//	                      with a local endpoint; else "none"
func (in rendezvousFlags) point(newID func() string) rendezvousPoint {
	oneNode := in.MaxNodes == 1
	if in.Standalone {
		return rendezvousPoint{rdzv.BackendC10d, anyPort, newID(), cmp.Or(in.LocalAddr, rdzv.StaticMasterAddr), 0}
	}
	out := rendezvousPoint{Backend: in.backend(), Endpoint: in.Endpoint, RunID: in.RunID}
	if out.RunID == "" {
		out.RunID = NoRunID
		switch {
		case oneNode:
			out.RunID = newID()
		case in.isLocal():
			out.RunID = in.LocalRunID()
		}
	}
	switch {
	case out.Backend == rdzv.BackendStatic:
		out.MasterAddr, out.MasterPort = in.staticMaster()
		out.Endpoint = net.JoinHostPort(out.MasterAddr, strconv.Itoa(out.MasterPort))
	case oneNode:
		out.MasterAddr = cmp.Or(in.LocalAddr, rdzv.StaticMasterAddr)
		if in.Backend == "" {
			out.MasterAddr = cmp.Or(in.MasterAddr, out.MasterAddr)
			out.MasterPort = max(in.MasterPort, 0)
		}
		if out.Backend == rdzv.BackendC10d {
			out.Endpoint = cmp.Or(out.Endpoint, anyPort)
		}
	}
	return out
}

// backend returns the backend that was given or that follows from other flags.
func (in rendezvousFlags) backend() string {
	switch {
	case in.Standalone:
		return rdzv.BackendC10d
	case in.Backend != "":
		return in.Backend
	case in.MaxNodes > 1 && (in.NodeRankGiven || in.MasterAddr != "" || in.MasterPort >= 0):
		return rdzv.BackendStatic
	}
	return rdzv.BackendC10d
}

// staticMaster returns the worker store's address with the static backend. The endpoint is valid.
func (in rendezvousFlags) staticMaster() (host string, port int) {
	if in.Endpoint != "" {
		host, port, _ = rdzvconf.ParseEndpoint(in.Endpoint)
		return host, port
	}
	host = cmp.Or(in.MasterAddr, rdzv.StaticMasterAddr)
	switch {
	case in.MasterPort >= 0:
		return host, in.MasterPort
	case in.MaxNodes == 1:
		return host, 0
	}
	return host, rdzv.StaticMasterPort
}

// ignored returns the flags that rendezvousPoint did not use, and the setting that overrides them.
func (in rendezvousFlags) ignored(out rendezvousPoint) (names []string, why string) {
	switch {
	case in.Standalone:
		return []string{"rdzv-backend", "rdzv-endpoint", "rdzv-id", "master-addr", "master-port"}, "--standalone"
	case out.Backend == rdzv.BackendStatic && in.Endpoint != "":
		return []string{"master-addr", "master-port"}, "--rdzv-endpoint"
	case out.Backend != rdzv.BackendStatic && in.Backend != "":
		return []string{"master-addr", "master-port"}, "the " + in.Backend + " backend"
	}
	return nil, ""
}

func (c *Config) readRendezvous(r *reader, from surroundings, facts scheduler.Facts) {
	v := &c.Rendezvous
	in := readRendezvousFlags(r, c.MaxNodes)
	in.Standalone, in.NoEndpoint, in.OneMachine = c.Standalone, facts.NoEndpoint, facts.OneMachine
	in.LocalRunID = func() string { return c.localRunID(from.dir()) }
	in.Try = func() []string { return from.withEndpoints(len(c.ScriptArgs) + 1) }
	items := value[[]rdzvconf.Item](r, "rdzv-conf")
	checkLocal(r, in, items)
	v.Secret, v.SecretSource = agentsSecret(r, from)
	if v.LaunchRestarts = v.LaunchID != ""; !v.LaunchRestarts {
		v.LaunchID = facts.LaunchID().Is
	}
	checkBackend(r, in)
	endpoints := readEndpoints(r, in)
	if r.err != nil {
		return
	}
	out := in.point(from.newID)
	c.RunID = out.RunID
	v.Backend, v.Endpoint, v.Endpoints = out.Backend, out.Endpoint, endpoints
	v.MasterAddr, v.MasterPort = out.MasterAddr, out.MasterPort
	switch {
	case out.Backend == rdzv.BackendStatic:
		v.Endpoints = []HostPort{{out.MasterAddr, out.MasterPort}}
	case in.isLocal():
		v.Local, v.Endpoints = true, nil
	case out.Backend == rdzv.BackendC10d && in.MaxNodes > 1:
		v.Ports = candidatePorts(r, endpoints[0].Port, facts.PortKey)
		v.Endpoints[0].Port = v.Ports[0]
		for i := range v.Endpoints {
			if len(v.Ports) > 1 {
				v.Endpoints[i].Port = v.Ports[0]
			}
		}
	}
	c.DrawsSecret = c.Launch != nil && v.Secret.Reveal() == "" && !facts.EndpointGiven && v.Backend != rdzv.BackendEtcd
	v.readConf(r, items, from)
	c.checkEndpoints(r)
	if in.MaxNodes > 1 {
		v.checkCertificates(r, from)
		v.warnVoters(r, items)
	}
	c.readHint(r)
	v.Expected = expectedNodes(c.MinNodes, c.MaxNodes, facts.Nodes)
	c.checkRendezvous(r, in, out)
	c.checkAdmission(r)
}

func readRendezvousFlags(r *reader, maxNodes int) rendezvousFlags {
	in := rendezvousFlags{
		MaxNodes:      maxNodes,
		Backend:       r.text("rdzv-backend"),
		Endpoint:      strings.TrimSpace(r.text("rdzv-endpoint")),
		RunID:         r.text("rdzv-id"),
		MasterAddr:    value[string](r, "master-addr"),
		MasterPort:    -1,
		NodeRankGiven: r.given("node-rank"),
		LocalAddr:     value[string](r, "local-addr"),
	}
	if r.given("master-port") || r.inferred("master-port") {
		in.MasterPort = value[int](r, "master-port")
	}
	checkRunID(r, in.RunID)
	return in
}

func checkRunID(r *reader, runID string) {
	if r.given("rdzv-id") && strings.TrimSpace(runID) == "" || strings.Contains(runID, "/") {
		r.fail("rdzv-id", "must not be empty or contain a slash: it is part of the log folder's name")
	}
}

// checkBackend refuses backends of torch that do not exist here, and says what to use instead.
func checkBackend(r *reader, in rendezvousFlags) {
	switch {
	case in.Standalone || !r.given("rdzv-backend"):
	case in.Backend == "":
		r.fail("rdzv-backend", "must not be empty")
	case in.Backend == "etcd-v2":
		r.fail("rdzv-backend", "version 2 of etcd's API is not supported, and etcd itself has dropped it; "+
			"use --rdzv-backend=etcd, which speaks version 3")
	case slices.Contains([]string{"gloo", "nccl", "mpi", "ucc", "xccl", "hccl"}, in.Backend):
		r.fail("rdzv-backend", "is a backend of torch.distributed, which the script chooses; use c10d, static or etcd here")
	case in.Backend == "file":
		r.fail(
			"rdzv-backend",
			"there is no rendezvous by files; use c10d, with --rdzv-endpoint naming one of the nodes, or etcd",
		)
	case in.Backend == rdzv.BackendEtcd && (in.RunID == NoRunID || in.RunID == "" && in.MaxNodes > 1):
		r.fail("rdzv-id", "the etcd backend needs a run id that no other job in the same etcd has: "+
			"give --rdzv-id=ID, the same on all nodes")
	}
}

// readHint reads the rank that this node was given.
func (c *Config) readHint(r *reader) {
	v := &c.Rendezvous
	v.Hint = -1
	rank := value[int](r, "node-rank")
	if r.given("node-rank") || r.inferred("node-rank") {
		v.Hint = rank
	}
	static := v.Backend == rdzv.BackendStatic
	if static && c.MaxNodes > 1 && v.Hint < 0 { // torchrun's default
		v.Hint = 0
		r.warn("node-rank", "is 0, because it is not given and no scheduler provides it; give every other node its own rank")
	}
	switch {
	case static && v.Hint >= c.MaxNodes && r.inferred("node-rank"):
		r.fail(
			"node-rank",
			fmt.Sprintf("is the node's rank, because --node-rank is not given; it must be below the number of nodes, %d",
				c.MaxNodes),
		)
	case static && v.Hint >= c.MaxNodes:
		r.fail("node-rank", fmt.Sprintf("must be below the number of nodes, %d", c.MaxNodes))
	case static && c.MinNodes < c.MaxNodes:
		r.warn("nnodes", fmt.Sprintf("the static backend waits for all %d nodes, whose ranks are given", c.MaxNodes))
		c.MinNodes = c.MaxNodes
	case c.MaxNodes == 1 && v.Hint > 0:
		r.warn("node-rank", "has no effect: the number of nodes is 1")
	}
}

// checkRendezvous refuses what contradicts the backend and warns about what it ignores.
func (c *Config) checkRendezvous(r *reader, in rendezvousFlags, out rendezvousPoint) {
	static := out.Backend == rdzv.BackendStatic
	switch {
	case in.Standalone && in.MaxNodes > 1:
		r.fail("nnodes", "--standalone runs on one node")
	case static && in.MaxNodes > 1 && out.MasterPort == 0:
		r.fail("master-port", "several nodes need a port that they all know")
	case static && in.MaxNodes > 1 && isUnspecified(out.MasterAddr):
		r.fail("master-addr", "is no address that other nodes can reach")
	}
	names, why := in.ignored(out)
	for _, name := range names {
		if r.given(name) {
			r.warn(name, "has no effect with "+why)
		}
	}
	switch {
	case !r.given("worker-store-port"):
	case in.MaxNodes == 1:
		r.warn("worker-store-port", "has no effect on one node; use --master-port")
	case static:
		r.warn("worker-store-port", "has no effect with the static backend, whose workers meet at the master address")
	}
	warnLoopback(r, in, c.Rendezvous.Endpoints)
}

// warnLoopback warns of an endpoint that only agents of this machine can reach. It is no error, because several
// agents of one machine can form a job.
func warnLoopback(r *reader, in rendezvousFlags, endpoints []HostPort) {
	if in.MaxNodes == 1 || in.OneMachine {
		return
	}
	name, problem := "rdzv-endpoint", ""
	switch {
	case in.Endpoint != "":
	case in.MasterAddr != "":
		name = "master-addr"
	default:
		name, problem = "nnodes", "there is no --master-addr or --rdzv-endpoint, and "
	}
	for _, e := range endpoints {
		if rdzvconf.IsLoopback(e.Host) {
			r.warn(name, problem+e.Host+" means another machine on each node: only agents of one machine can meet there")
		}
	}
}
