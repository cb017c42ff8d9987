package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/elasticrun/elasticrun/internal/scheduler"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

func (c *Config) readRendezvous(r *reader, from surroundings, facts scheduler.Facts) {
	c.Standalone = r.flag("standalone")
	in := readRendezvousFlags(r, c.MaxNodes)
	in.Standalone, in.NoEndpoint, in.OneMachine = c.Standalone, facts.NoEndpoint, facts.OneMachine
	items := read(r, "rdzv-conf", parseConf)
	v := &c.Rendezvous
	v.WorkerStorePorts = read(r, "worker-store-port", parsePortRange)
	v.Secret = agentsSecret(r, from)
	if v.LaunchID, v.LaunchRestarts = read(r, "launch-id", launchID), true; v.LaunchID == "" {
		v.LaunchID, v.LaunchRestarts = facts.LaunchID().Is, false
	}
	checkBackend(r, in)
	endpoints := checkEndpoint(r, in)
	if r.err != nil {
		return
	}
	out := settle(in, from.newID)
	c.RunID = out.RunID
	v.Backend, v.Endpoint, v.Endpoints = out.Backend, out.Endpoint, endpoints
	v.MasterAddr, v.MasterPort, v.LocalAddr = out.MasterAddr, out.MasterPort, in.LocalAddr
	switch {
	case out.Backend == rdzv.BackendStatic:
		v.Endpoints = []HostPort{{out.MasterAddr, out.MasterPort}}
	case out.Backend == rdzv.BackendC10d && in.MaxNodes > 1:
		v.Ports = candidatePorts(r, endpoints[0].Port, facts.PortKey)
		v.Endpoints[0].Port = v.Ports[0]
	}
	c.readConf(r, items, from)
	c.readHint(r)
	v.Expected = expectedNodes(c.MinNodes, c.MaxNodes, facts.Nodes)
	c.checkRendezvous(r, in, out)
}

func readRendezvousFlags(r *reader, maxNodes int) rendezvousFlags {
	in := rendezvousFlags{
		MaxNodes:      maxNodes,
		Backend:       r.text("rdzv-backend"),
		Endpoint:      strings.TrimSpace(r.text("rdzv-endpoint")),
		RunID:         r.text("rdzv-id"),
		MasterAddr:    readHost(r, "master-addr"),
		MasterPort:    -1,
		NodeRankGiven: r.given("node-rank"),
		LocalAddr:     readHost(r, "local-addr"),
	}
	if r.given("master-port") || r.inferred("master-port") {
		in.MasterPort = read(r, "master-port", between(0, 65535))
	}
	checkRunID(r, in.RunID)
	return in
}

// maxLaunchID is far longer than the id of any scheduler, in bytes.
const maxLaunchID = 256

func launchID(s string) (string, error) {
	if len(s) > maxLaunchID {
		return "", fmt.Errorf("must be at most %d bytes long", maxLaunchID)
	}
	return s, nil
}

func checkRunID(r *reader, runID string) {
	if r.given("rdzv-id") && strings.TrimSpace(runID) == "" || strings.Contains(runID, "/") {
		r.fail("rdzv-id", "must not be empty or contain a slash: it is part of the log folder's name")
	}
}

// checkBackend refuses backends of torch's that are not here, and says what to use instead.
func checkBackend(r *reader, in rendezvousFlags) {
	switch {
	case in.Standalone || !r.given("rdzv-backend"):
	case in.Backend == "":
		r.fail("rdzv-backend", "must not be empty")
	case in.Backend == "etcd-v2":
		r.fail("rdzv-backend", "etcd's API of version 2 is not supported, nor is it by etcd any longer; "+
			"use --rdzv-backend=etcd, which speaks version 3")
	case in.Backend == "file":
		r.fail("rdzv-backend", "there is no rendezvous by files; use c10d, with --rdzv-endpoint naming one of the nodes, or etcd")
	case in.Backend == rdzv.BackendEtcd && (in.RunID == NoRunID || in.RunID == "" && in.MaxNodes > 1):
		r.fail("rdzv-id", "the etcd backend needs a run id of the job's own, as other jobs may use the same etcd: "+
			"give --rdzv-id=ID, the same on all nodes")
	}
}

// checkEndpoint checks an endpoint that is used, unless it belongs to a backend which is not known here, and returns
// what it says; nothing for static.
func checkEndpoint(r *reader, in rendezvousFlags) []HostPort {
	const name = "rdzv-endpoint"
	backend := backendOf(in)
	switch {
	case r.err != nil || !known(backend):
		return nil
	case in.Standalone || backend == rdzv.BackendC10d && in.Endpoint == "" && in.MaxNodes == 1:
		return []HostPort{{"localhost", 0}}
	case in.Endpoint == "" && backend != rdzv.BackendStatic && in.MaxNodes > 1:
		r.fail("nnodes", noEndpoint(backend, in.NoEndpoint))
		return nil
	case in.Endpoint == "":
		return nil
	}
	var found []HostPort
	texts := []string{in.Endpoint}
	if backend == rdzv.BackendEtcd { // whose members are equals
		texts = strings.Split(in.Endpoint, ",")
	}
	for _, text := range texts {
		host, port, err := parseEndpoint(strings.TrimSpace(text))
		at := HostPort{host, port}
		switch {
		case err != nil:
			r.fail(name, err.Error())
		case port < 0 && backend == rdzv.BackendStatic:
			r.fail(name, "the static backend needs HOST:PORT")
		case port < 0:
			at.Port = map[string]int{rdzv.BackendEtcd: etcdPort, rdzv.BackendC10d: c10dPort}[backend]
		case port == 0 && in.MaxNodes > 1 && backend != rdzv.BackendStatic:
			r.fail(name, "several nodes need a port that they all know")
		}
		if in.MaxNodes > 1 && everyAddress(host) {
			r.fail(name, shown(host)+" is no address that other nodes could reach: name one of this machine's, or a host")
		}
		found = append(found, at)
	}
	return found
}

// noEndpoint says what a job of several nodes lacks; here is what the surroundings say of it, or nothing.
func noEndpoint(backend, here string) string {
	const need = "several nodes must be told where to meet: "
	const give = "give --rdzv-endpoint=HOST[:PORT] (or PET_RDZV_ENDPOINT, or rdzv-endpoint in the config file), "
	switch {
	case backend == rdzv.BackendEtcd:
		return need + give + "where etcd is"
	case here != "":
		return need + here
	}
	return need + give + "the host name or address of one node, the same on all of them; or MASTER_ADDR in the environment"
}

// readConf takes in --rdzv-conf.
func (c *Config) readConf(r *reader, items []confItem, from surroundings) {
	v := &c.Rendezvous
	v.defaults()
	v.Conf = make(map[string]string, len(items))
	for _, item := range items {
		if !known(v.Backend) || !isPassword(item.key) && !item.behindPassword {
			v.Conf[item.key] = item.value
		}
	}
	if !known(v.Backend) {
		return
	}
	options := confReader{Rendezvous: v, from: from}
	if err := options.read(items); err != nil {
		r.fail("rdzv-conf", err.Error())
	}
	for _, warning := range options.warnings {
		r.warn("rdzv-conf", warning)
	}
}

// readHint finds out which rank this node was given.
func (c *Config) readHint(r *reader) {
	v := &c.Rendezvous
	v.Hint = -1
	rank := read(r, "node-rank", between(0, maxNodes))
	if r.given("node-rank") || r.inferred("node-rank") {
		v.Hint = rank
	}
	static := v.Backend == rdzv.BackendStatic
	switch {
	case static && c.MaxNodes > 1 && v.Hint < 0:
		r.fail("nnodes", "the static backend must be told the rank of each node: give --node-rank, from 0 on "+
			"(a scheduler may say it too: SLURM_NODEID, JOB_COMPLETION_INDEX)")
	case static && v.Hint >= c.MaxNodes && r.inferred("node-rank"):
		r.fail("node-rank", fmt.Sprintf("as --node-rank is not given this is the node's rank, which must be below the number of nodes, %d",
			c.MaxNodes))
	case static && v.Hint >= c.MaxNodes:
		r.fail("node-rank", fmt.Sprintf("must be below the number of nodes, %d", c.MaxNodes))
	case static && c.MinNodes < c.MaxNodes:
		r.warn("nnodes", fmt.Sprintf("the static backend waits for all %d nodes, whose ranks are given", c.MaxNodes))
		c.MinNodes = c.MaxNodes
	case c.MaxNodes == 1 && v.Hint > 0:
		r.warn("node-rank", "has no effect: the number of nodes is 1")
	}
}

// checkRendezvous refuses what contradicts the chosen backend and warns about
// what it ignores.
func (c *Config) checkRendezvous(r *reader, in rendezvousFlags, out settled) {
	static := out.Backend == rdzv.BackendStatic
	switch {
	case in.Standalone && in.MaxNodes > 1:
		r.fail("nnodes", "--standalone runs on one node")
	case static && in.MaxNodes > 1 && out.MasterPort == 0:
		r.fail("master-port", "several nodes need a port that they all know")
	case static && in.MaxNodes > 1 && everyAddress(out.MasterAddr):
		r.fail("master-addr", "is no address that other nodes could reach")
	}
	names, why := ignored(in, out)
	for _, name := range names {
		if r.given(name) {
			r.warn(name, "has no effect with "+why)
		}
	}
	switch {
	case !r.given("worker-store-port"):
	case in.MaxNodes == 1:
		r.warn("worker-store-port", "has no effect on one node; --master-port has")
	case static:
		r.warn("worker-store-port", "has no effect with the static backend, whose workers meet at the master address")
	}
	warnLoopback(r, in, c.Rendezvous.Endpoints)
}

// warnLoopback warns of a meeting point that only this machine's agents can reach. It is no error: several agents of
// one machine are a job too.
func warnLoopback(r *reader, in rendezvousFlags, at []HostPort) {
	if in.MaxNodes == 1 || in.OneMachine {
		return
	}
	name := "rdzv-endpoint"
	if in.Endpoint == "" {
		name = "master-addr"
	}
	for _, e := range at {
		if loopback(e.Host) {
			r.warn(name, e.Host+" is this machine, to each node another one: only agents of one machine meet there")
		}
	}
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// everyAddress recognizes 0.0.0.0 and ::.
func everyAddress(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsUnspecified()
}

// ignored names the flags that settle did not use, and what made them void.
func ignored(in rendezvousFlags, out settled) (names []string, why string) {
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

// parsePortRange reads N or LO-HI; empty is no range.
func parsePortRange(s string) (PortRange, error) {
	if s == "" {
		return PortRange{}, nil
	}
	low, high, isRange := strings.Cut(s, "-")
	if !isRange {
		high = low
	}
	one := between(1, 65535)
	from, errLow := one(low)
	to, errHigh := one(high)
	switch {
	case errLow != nil || errHigh != nil:
		return PortRange{}, errors.New("must be N or LO-HI, each a port between 1 and 65535")
	case from > to:
		return PortRange{}, fmt.Errorf("LO must not be above HI: did you mean %d-%d?", to, from)
	}
	return PortRange{from, to}, nil
}
