package config

import (
	"cmp"
	"net"
	"strconv"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Backends that are known here, beside those of pkg/rdzv, and the ports that torch gives them.
const (
	c10dPort = 29400
	etcdPort = 2379
)

// known tells whether the backend's endpoint and options are checked here.
func known(backend string) bool {
	return backend == rdzv.BackendC10d || backend == rdzv.BackendStatic || backend == rdzv.BackendEtcd
}

// settled is the outcome of the flags that tell where nodes meet.
type settled struct {
	Backend, Endpoint, RunID string
	MasterAddr               string
	MasterPort               int
}

// rendezvousFlags are these flags. Empty text means not given.
type rendezvousFlags struct {
	Standalone               bool
	MaxNodes                 int
	Backend, Endpoint, RunID string
	MasterAddr               string // without brackets
	MasterPort               int    // -1: not given
	NodeRankGiven            bool
	LocalAddr                string
	OneMachine               bool   // all agents are known to be on this one
	NoEndpoint               string // what the surroundings say of a missing endpoint; see noEndpoint
}

// anyPort is the endpoint of a rendezvous whose port the launcher chooses.
const anyPort = "localhost:0"

// NoRunID is the run id of jobs that were given none. Several may have it.
const NoRunID = "none"

// settle applies the defaults that span several flags:
//
//	--standalone          c10d on a free port, a fresh run id
//	no backend            c10d; static if the flags of static are given and there may be several nodes
//	c10d on one node      endpoint and worker store on free ports; without --rdzv-backend,
//	                      --master-addr and --master-port place the worker store
//	static                the endpoint is the master address; unset, it is 127.0.0.1 and
//	                      a free port on one node, else 29500
//	no run id             a fresh one on one node, where nobody else could need to know it, else "none"
func settle(in rendezvousFlags, newID func() string) settled {
	oneNode := in.MaxNodes == 1
	if in.Standalone {
		return settled{rdzv.BackendC10d, anyPort, newID(), cmp.Or(in.LocalAddr, rdzv.StaticMasterAddr), 0}
	}
	out := settled{Backend: backendOf(in), Endpoint: in.Endpoint, RunID: in.RunID}
	if out.RunID == "" {
		out.RunID = NoRunID
		if oneNode {
			out.RunID = newID()
		}
	}
	switch {
	case out.Backend == rdzv.BackendStatic:
		out.MasterAddr, out.MasterPort = staticMaster(in, oneNode)
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

// backendOf returns the backend that is asked for or follows from other flags.
func backendOf(in rendezvousFlags) string {
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

// staticMaster returns the worker store's address with the static backend. An
// endpoint has been checked before.
func staticMaster(in rendezvousFlags, oneNode bool) (host string, port int) {
	if in.Endpoint != "" {
		host, port, _ = parseEndpoint(in.Endpoint)
		return host, port
	}
	host = cmp.Or(in.MasterAddr, rdzv.StaticMasterAddr)
	switch {
	case in.MasterPort >= 0:
		return host, in.MasterPort
	case oneNode:
		return host, 0
	}
	return host, rdzv.StaticMasterPort
}
