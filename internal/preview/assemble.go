package preview

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Input is what a plan is assembled from.
type Input struct {
	Version, Host string
	Config        *config.Config
	// Spec is what the agent would get.
	Spec        agent.WorkerSpec
	Interpreter *Interpreter
	// Env is what workers would get beneath torch's variables; Inherited is the launcher's own environment, of which nothing is shown.
	Env, Inherited []string
	Logs           workerlog.LogPlan
	// WorkersHost says that the worker of rank 0 hosts the workers' store.
	WorkersHost bool
	Endpoints   []Endpoint
	// Finished says that the run id is that of a finished run, and what follows; empty for nothing.
	Finished string
}

// Assemble makes the plan. Its errors are those that a start of the workers would have.
func Assemble(in Input) (Plan, error) {
	c := in.Config
	p := Plan{
		Version: in.Version, Host: in.Host, ConfigFile: c.ConfigFile, StartedBy: c.Launch, Warnings: c.Warnings,
		Interpreter: in.Interpreter,
		Logs:        Logs{Folder: in.Logs.Run, Temporary: c.LogDir == "" && in.Logs.Run != ""},
		Job: Job{
			RunID: c.RunID, MinNodes: c.MinNodes, MaxNodes: c.MaxNodes, NprocPerNode: c.NprocPerNode, Role: c.Role, MaxRestarts: c.MaxRestarts,
		},
		Rendezvous: rendezvous(c, in.Endpoints),
	}
	p.Rendezvous.Finished = in.Finished
	for _, s := range c.Settings {
		p.Settings = append(p.Settings, Setting{Name: s.Name, Value: s.Value, Source: s.Source.String()})
	}
	if FreshRunID(c) {
		p.Job.RunID = ""
	}
	if n := c.Rendezvous.Expected; n > 0 {
		p.Job.ExpectedNodes = &n
	}
	if hint := c.Rendezvous.Hint; hint >= 0 && c.MaxNodes > 1 {
		p.Job.NodeRank = &hint
	}
	var err error
	p.Workers, err = workers(in)
	p.RanksNote = ranksNote(c)
	return p, err
}

// FreshRunID tells whether each launch takes a run id of its own.
func FreshRunID(c *config.Config) bool {
	given := slices.ContainsFunc(c.Settings, func(s config.Setting) bool { return s.Name == "rdzv-id" && s.Given() })
	return c.Standalone || c.MaxNodes == 1 && !given
}

// rendezvous says how the nodes would meet.
func rendezvous(c *config.Config, at []Endpoint) Rendezvous {
	r := Rendezvous{
		Backend: c.Rendezvous.Backend, Endpoint: c.Rendezvous.Endpoint, WorkerStore: workerStore(c),
		JoinTimeout: c.Rendezvous.JoinTimeout.Seconds(), Endpoints: at,
	}
	r.Hosts, r.HostsWhy = hosting(c, at)
	return r
}

// hosting says who would host the store of the rendezvous, and why.
func hosting(c *config.Config, at []Endpoint) (who, why string) {
	switch {
	case c.MaxNodes == 1:
		return HostsAlone, "there is one node: the rendezvous is in the launcher, and nothing listens for it"
	case c.Rendezvous.Backend == rdzv.BackendEtcd:
		return HostsElection, "the rendezvous is in etcd, and the agents elect who leads it"
	case len(at) == 0:
		return HostsUnknown, "the endpoint is not known"
	}
	e := meetingPort(at)
	for _, a := range e.Addresses {
		if a.Seen != nil {
			return HostsNo, "a store is there already"
		}
	}
	may, err := mayHost(c, e)
	switch {
	case e.Problem != "":
		return HostsUnknown, e.Problem
	case err != nil:
		return HostsUnknown, err.Error()
	case may && taken(e):
		return HostsNo, "somebody else has the port on this machine"
	case c.Rendezvous.Backend == rdzv.BackendStatic && may:
		return HostsYes, "its rank is 0"
	case c.Rendezvous.Backend == rdzv.BackendStatic:
		return HostsNo, "static has it on the node of rank 0"
	case !may && c.Rendezvous.IsHost != nil:
		return HostsNo, "is_host, or the scheduler, says that another node does"
	case !may:
		return HostsNo, "the endpoint is another machine"
	case c.Rendezvous.IsHost != nil:
		return HostsYes, "is_host, or the scheduler, says so"
	}
	return HostsYes, "the endpoint is this machine; the first of its agents that binds the port does"
}

// meetingPort returns that of an endpoint's candidate ports at which the nodes would meet: where the store of this run is, else the first that nobody has on
// this machine, else the first.
func meetingPort(at []Endpoint) Endpoint {
	for _, e := range at {
		if slices.ContainsFunc(e.Addresses, func(a Address) bool { return a.State == StateThisRun }) {
			return e
		}
	}
	for _, e := range at {
		if !taken(e) {
			return e
		}
	}
	return at[0]
}

// mayHost tells whether this node is one that would host the store at an endpoint.
func mayHost(c *config.Config, e Endpoint) (bool, error) {
	isHost := c.Rendezvous.IsHost
	if c.Rendezvous.Backend == rdzv.BackendStatic {
		first := c.Rendezvous.Hint == 0
		isHost = &first
	}
	at := elastic.Endpoint{Host: e.Host, Port: e.Port}
	var own elastic.Interface
	own.Up = true
	for _, a := range e.Addresses {
		at.Addrs = append(at.Addrs, a.Addr)
		if a.Local {
			own.Addrs = append(own.Addrs, a.Addr.WithZone(""))
		}
	}
	choice, err := elastic.HostChoice(at, []elastic.Interface{own}, isHost, c.Rendezvous.Hint)
	return choice.Candidate, err
}

// workerStore says where MASTER_ADDR and MASTER_PORT would lead.
func workerStore(c *config.Config) string {
	v := c.Rendezvous
	port := "a free port"
	switch {
	case v.MasterPort > 0:
		return net.JoinHostPort(v.MasterAddr, strconv.Itoa(v.MasterPort))
	case v.WorkerStorePorts != config.PortRange{}:
		port = "port " + elastic.Ports(v.WorkerStorePorts).String()
	}
	if c.MaxNodes > 1 {
		return "on the node of rank 0, " + port
	}
	return fmt.Sprintf("%s, %s", v.MasterAddr, port)
}

// workers says how this node's workers would be started.
func workers(in Input) ([]Worker, error) {
	var imagined [2][]procs.Spec
	rounds := imagine(in.Config, in.WorkersHost)
	ids := [2]string{in.Config.RunID, in.Config.RunID}
	if FreshRunID(in.Config) {
		ids[1] += " or another"
	}
	files := make([]workerlog.LogFiles, in.Spec.LocalWorldSize)
	for i := range files {
		files[i] = in.Logs.Files(i)
	}
	for i, round := range rounds {
		var err error
		imagined[i], err = agent.Preview(in.Spec, agent.Hypothetical{Round: &round, RunID: ids[i], Hostname: in.Host, Env: in.Env, Files: files})
		if err != nil {
			return nil, err
		}
	}
	out := make([]Worker, in.Spec.LocalWorldSize)
	for i := range out {
		a, b := imagined[0][i], imagined[1][i]
		out[i] = Worker{
			LocalRank: i, Command: a.Argv, CPUs: topology.FormatCPUList(a.CPUs), Env: settled(a.Env, b.Env, in.Inherited),
			Stdout: stream(a.Stdout, b.Stdout), Stderr: stream(a.Stderr, b.Stderr),
		}
		if base := rounds[0].Assignment.GlobalBase; base == rounds[1].Assignment.GlobalBase {
			rank := base + i
			out[i].Rank = &rank
		}
	}
	return out, nil
}

// imagine returns two first rounds that are alike in all that is known before, and in nothing else.
func imagine(c *config.Config, workersHost bool) [2]rdzv.Round {
	v, nproc, nodes := c.Rendezvous, c.NprocPerNode, c.MaxNodes
	var out [2]rdzv.Round
	for i := range out {
		r := rdzv.Round{WorldSize: nodes, MasterAddr: v.MasterAddr, MasterPort: v.MasterPort, UseAgentStore: !workersHost}
		if c.MinNodes < c.MaxNodes {
			r.WorldSize += i
		}
		switch {
		case nodes == 1:
		case v.Backend == rdzv.BackendStatic:
			r.Rank = v.Hint
		default:
			r.Rank = i
		}
		if r.MasterAddr == "" {
			r.MasterAddr = "node" + strconv.Itoa(i)
		}
		if r.MasterPort == 0 {
			r.MasterPort = 1 + i
		}
		// Other nodes may have other numbers of workers; ranksNote says that it is taken for granted that they have not.
		r.Assignment = rdzv.Assignment{
			GlobalBase: r.Rank * nproc, GlobalWorldSize: r.WorldSize * nproc, RoleBase: r.Rank * nproc, RoleWorldSize: r.WorldSize * nproc,
		}
		out[i] = r
	}
	return out
}

// ranksNote says how far the ranks are known.
func ranksNote(c *config.Config) string {
	v, alike := c.Rendezvous, fmt.Sprintf("if each node has %d workers, as this one", c.NprocPerNode)
	order := "nodes are ordered by the names of their hosts"
	if v.Hint >= 0 {
		order = fmt.Sprintf("nodes are ordered by the rank that they were given, which is %d here", v.Hint)
	}
	switch {
	case c.MaxNodes == 1:
		return "known: there is one node"
	case v.Backend == rdzv.BackendStatic:
		return "known, " + alike
	case c.MinNodes == c.MaxNodes:
		return "decided by the rendezvous: " + order + "; the world size is known, " + alike
	}
	return "decided by the rendezvous: " + order + ", and as many are in a round as come"
}

// settled lists what elasticrun sets for a worker, which the launcher's own environment has not. What the two rounds make of a variable
// differently is not known.
func settled(a, b, inherited []string) []Variable {
	own := make(map[string]bool, len(inherited))
	for _, kv := range inherited {
		own[kv] = true
	}
	var out []Variable
	for _, kv := range a {
		known := slices.Contains(b, kv)
		if known && own[kv] {
			continue
		}
		name, value, _ := strings.Cut(kv, "=")
		v := Variable{Name: name}
		if known {
			v.Value = &value
		}
		out = append(out, v)
	}
	return out
}

// stream says where a stream goes, if both rounds agree on it.
func stream(a, b workerlog.Output) Stream {
	if a.Console != b.Console || a.File != b.File || !slices.Equal(a.Prefix, b.Prefix) {
		return Stream{}
	}
	return Stream{Known: true, Console: a.Console, Prefix: prefix(a.Prefix), File: a.File, FilteredFile: a.FilteredFile}
}

// prefix is a line's prefix, with ${time} for the time at which it is written.
func prefix(p workerlog.Prefix) string { return strings.Join(p, "${time}") }
