package config

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// rendezvous is the outcome of the flags that tell how nodes find each other.
type rendezvous struct {
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
}

// anyPort is the endpoint of a rendezvous whose port the launcher chooses.
const anyPort = "localhost:0"

// settle applies the defaults that span several flags:
//
//	--standalone          c10d on a free port, a fresh run id
//	no backend            c10d; static if the flags of static are given and there may be several nodes
//	c10d on one node      endpoint and worker store on free ports; without --rdzv-backend,
//	                      --master-addr and --master-port place the worker store
//	static                the endpoint is the master address; unset, it is 127.0.0.1 and
//	                      a free port on one node, else 29500
//	no run id             a fresh one on one node, where nobody else could need to know it, else "none"
func settle(in rendezvousFlags, newID func() string) rendezvous {
	oneNode := in.MaxNodes == 1
	if in.Standalone {
		return rendezvous{rdzv.BackendC10d, anyPort, newID(), cmp.Or(in.LocalAddr, rdzv.StaticMasterAddr), 0}
	}
	out := rendezvous{Backend: backendOf(in), Endpoint: in.Endpoint, RunID: in.RunID}
	if out.RunID == "" {
		out.RunID = "none"
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

// oneMachine refuses jobs of several nodes, which this version cannot run.
func oneMachine(r *reader, nodes int) {
	if nodes > 1 {
		r.fail("nnodes", "this version runs jobs on one machine only: --nnodes must be 1 (rendezvous over several nodes is still to come)")
	}
}

func (c *Config) readRendezvous(r *reader, newID func() string) {
	c.Standalone = r.flag("standalone")
	in := rendezvousFlags{
		Standalone:    c.Standalone,
		MaxNodes:      c.MaxNodes,
		Backend:       r.text("rdzv-backend"),
		Endpoint:      strings.TrimSpace(r.text("rdzv-endpoint")),
		RunID:         r.text("rdzv-id"),
		MasterAddr:    readHost(r, "master-addr"),
		MasterPort:    -1,
		NodeRankGiven: r.given("node-rank"),
		LocalAddr:     readHost(r, "local-addr"),
	}
	if r.given("master-port") {
		in.MasterPort = read(r, "master-port", between(0, 65535))
	}
	c.RdzvConf = read(r, "rdzv-conf", parseConf)
	if r.given("rdzv-backend") && in.Backend == "" {
		r.fail("rdzv-backend", "must not be empty")
	}
	if r.given("rdzv-id") && strings.TrimSpace(in.RunID) == "" || strings.Contains(in.RunID, "/") {
		r.fail("rdzv-id", "must not be empty or contain a slash: it is part of the log folder's name")
	}
	checkEndpoint(r, in)
	if r.err != nil {
		return
	}
	out := settle(in, newID)
	c.RdzvBackend, c.RdzvEndpoint, c.RunID = out.Backend, out.Endpoint, out.RunID
	c.MasterAddr, c.MasterPort, c.LocalAddr = out.MasterAddr, out.MasterPort, in.LocalAddr
	c.checkRendezvous(r, in, out)
}

// checkEndpoint checks the form of an endpoint that is used, unless it belongs to
// a backend which is not known here.
func checkEndpoint(r *reader, in rendezvousFlags) {
	backend := backendOf(in)
	known := backend == rdzv.BackendC10d || backend == rdzv.BackendStatic
	if in.Standalone || in.Endpoint == "" || !known {
		return
	}
	_, port, err := parseEndpoint(in.Endpoint)
	switch {
	case err != nil:
		r.fail("rdzv-endpoint", err.Error())
	case backend == rdzv.BackendStatic && port < 0:
		r.fail("rdzv-endpoint", "the static backend needs HOST:PORT")
	}
}

// checkRendezvous refuses what contradicts the chosen backend and warns about
// what it ignores.
func (c *Config) checkRendezvous(r *reader, in rendezvousFlags, out rendezvous) {
	unused, err := checkConf(out.Backend, c.RdzvConf)
	if err != nil {
		r.fail("rdzv-conf", err.Error())
	}
	for _, warning := range unused {
		r.warn("rdzv-conf", warning)
	}
	static := out.Backend == rdzv.BackendStatic
	switch {
	case in.Standalone && in.MaxNodes > 1:
		r.fail("nnodes", "--standalone runs on one node")
	case static && c.NodeRank >= in.MaxNodes:
		r.fail("node-rank", fmt.Sprintf("must be below the number of nodes, %d", in.MaxNodes))
	case static && in.MaxNodes > 1 && out.MasterPort == 0:
		r.fail("master-port", "several nodes need a port that they all know")
	case c.NodeRank >= in.MaxNodes:
		r.warn("node-rank", fmt.Sprintf("has no effect: the number of nodes is %d", in.MaxNodes))
	}
	names, why := ignored(in, out)
	for _, name := range names {
		if r.given(name) {
			r.warn(name, "has no effect with "+why)
		}
	}
}

// ignored names the flags that settle did not use, and what made them void.
func ignored(in rendezvousFlags, out rendezvous) (names []string, why string) {
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

// readHost reads an optional host name or address.
func readHost(r *reader, name string) string {
	if r.text(name) == "" {
		return ""
	}
	return read(r, name, parseHost)
}
