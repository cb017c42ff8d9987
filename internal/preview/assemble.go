package preview

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/plural"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// input is what assemble makes a Plan from.
type input struct {
	Version, Host string
	Config        *config.Config
	// Spec is what the agent would be given.
	Spec        agent.WorkerSpec
	Interpreter *Interpreter
	// Env is the workers' environment without torch's variables. Inherited is the launcher's own environment; a plan
	// does not show it.
	Env, Inherited []string
	Logs           workerlog.LogPlan
	// WorkersHost says that the worker of rank 0 hosts the workers' store.
	WorkersHost bool
	Endpoints   []Endpoint
	// Finished says that a finished run has this run id, and what the launch would do; else it is empty.
	Finished string
}

// assemble makes the plan. Its errors are those of starting the workers.
func assemble(in input) (Plan, error) {
	c := in.Config
	p := Plan{
		Version: in.Version, Host: in.Host, ConfigFile: c.ConfigFile, StartedBy: c.Launch, Warnings: c.Warnings,
		Interpreter: in.Interpreter,
		Logs:        Logs{Folder: in.Logs.Run, Temporary: c.LogDir == "" && in.Logs.Run != ""},
		Job: Job{
			RunID: c.RunID, MinNodes: c.MinNodes, MaxNodes: c.MaxNodes, NodesMultiple: c.NodesMultiple,
			NprocPerNode: c.NprocPerNode, Role: c.Role,
			MaxRestarts: c.MaxRestarts, Preemption: preemption(c),
		},
		Rendezvous: rendezvous(c, in.Endpoints),
	}
	p.Rendezvous.Finished = in.Finished
	for _, s := range c.Settings {
		p.Settings = append(p.Settings, Setting{Name: s.Name, Value: s.Value, Source: s.Source.String()})
	}
	if freshRunID(c) {
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

// preemption says what preempts the job and what follows; empty if nothing does.
func preemption(c *config.Config) string {
	if len(c.PreemptSignals) == 0 {
		return ""
	}
	var names []string
	for _, sig := range c.PreemptSignals {
		names = append(names, procs.SignalName(sig))
	}
	left, why := c.PreemptNotice, ""
	if left > 0 {
		why = fmt.Sprintf(" (the node is taken away after %s)", seconds.Format(left))
	} else if !c.Deadline.IsZero() {
		why = " (less towards the end of the Slurm job, " + c.Deadline.Format(time.DateTime) + ")"
	}
	save := agent.SaveTime(c.PreemptGrace, c.ShutdownTimeout, left)
	return fmt.Sprintf("%s: workers have %s to save%s; exit code %d", strings.Join(names, ", "), seconds.Format(save), why,
		c.PreemptExitCode)
}

// freshRunID reports whether each launch gets a new run id.
func freshRunID(c *config.Config) bool {
	given := slices.ContainsFunc(c.Settings, func(s config.Setting) bool { return s.Name == "rdzv-id" && s.Given() })
	return c.Standalone || c.MaxNodes == 1 && !given
}

// rendezvous describes how the nodes would find each other.
func rendezvous(c *config.Config, endpoints []Endpoint) Rendezvous {
	r := Rendezvous{
		Backend: c.Rendezvous.Backend, Endpoint: c.Rendezvous.Endpoint, WorkerStore: workerStore(c),
		JoinTimeout: c.Rendezvous.JoinTimeout.Seconds(), Endpoints: endpoints, Admission: c.Admission().Who,
	}
	if Refusal(c, endpoints) != nil { // then this node's settings do not describe what is there
		r.Admission = "unknown: this node is refused at the endpoint"
	}
	r.Hosts, r.HostsWhy = hosting(c, endpoints)
	r.Keepers = Keepers(c)
	return r
}

// Keepers says which agents would keep the coordination store, and whose loss would end the job. It returns "" if no
// agents of several nodes keep one.
func Keepers(c *config.Config) string {
	r := &c.Rendezvous
	if c.MaxNodes == 1 || r.Backend != rdzv.BackendC10d || r.Local {
		return ""
	}
	switch {
	case len(r.Endpoints) > 0 && rdzvconf.OnlyHere(r.Endpoints[0].Host, r.IsHost), r.Voters == 1:
		return "by its host alone, unless elasticrun store is there: the loss of the host ends the job"
	case c.MaxNodes == 2:
		return "by its host, unless elasticrun store is there: it hands over to the other node when it is told to stop or " +
			"its agent is killed; if its node is lost, the other one waits for it and ends"
	case len(r.Endpoints) == 1:
		return fmt.Sprintf("by %d nodes once as many have joined: any one may be lost; newcomers find the job only at "+
			"the endpoint: name three nodes (--rdzv-endpoint=HOST,HOST,HOST) to do without the first", r.Voters)
	}
	return fmt.Sprintf("by %d nodes once as many have joined: any one may be lost; newcomers find the job while one "+
		"of the endpoints is left", r.Voters)
}

// hosting returns who would host the coordination store, and why.
func hosting(c *config.Config, endpoints []Endpoint) (who, why string) {
	switch {
	case c.MaxNodes == 1:
		return HostsAlone, "there is one node: the rendezvous runs inside the launcher and does not listen"
	case c.Rendezvous.Backend == rdzv.BackendEtcd:
		return HostsElection, "the rendezvous is in etcd, and the agents elect its leader"
	case len(endpoints) == 0:
		return HostsUnknown, "the endpoint is not known"
	}
	e := rendezvousPort(endpoints)
	for _, a := range e.Addresses {
		if a.Store != nil {
			return HostsNo, "a store already listens there"
		}
	}
	if c.Rendezvous.Local {
		return HostsYes, "the first agent of this machine hosts the store"
	}
	may, err := mayHost(c, e)
	switch {
	case e.Problem != "":
		return HostsUnknown, e.Problem
	case err != nil:
		return HostsUnknown, err.Error()
	case may && portTaken(e):
		return HostsNo, "another program on this machine holds the port"
	case c.Rendezvous.Backend == rdzv.BackendStatic && may:
		return HostsYes, "its rank is 0"
	case c.Rendezvous.Backend == rdzv.BackendStatic:
		return HostsNo, "the static backend hosts it on the node of rank 0"
	case !may && c.Rendezvous.IsHost != nil:
		return HostsNo, "is_host or the scheduler names another node"
	case !may:
		return HostsNo, "the endpoint is another machine"
	case c.Rendezvous.IsHost != nil:
		return HostsYes, "is_host or the scheduler names this node"
	}
	return HostsYes, "the endpoint is this machine; the first of its agents that binds the port hosts the store"
}

// rendezvousPort returns the candidate endpoint that the nodes would use: the one with the store of this run, else the
// first whose port is free on this machine, else the first.
func rendezvousPort(endpoints []Endpoint) Endpoint {
	for _, e := range endpoints {
		if slices.ContainsFunc(e.Addresses, func(a Address) bool { return a.State == StateThisRun }) {
			return e
		}
	}
	for _, e := range endpoints {
		if !portTaken(e) {
			return e
		}
	}
	return endpoints[0]
}

// mayHost reports whether this node could host the store at an endpoint.
func mayHost(c *config.Config, e Endpoint) (bool, error) {
	isHost := c.Rendezvous.IsHost
	if c.Rendezvous.Backend == rdzv.BackendStatic {
		first := c.Rendezvous.Hint == 0
		isHost = &first
	}
	at := machine.Endpoint{Host: e.Host, Port: e.Port}
	var own machine.Interface
	own.Up = true
	for _, a := range e.Addresses {
		at.Addrs = append(at.Addrs, a.Addr)
		if a.Local {
			own.Addrs = append(own.Addrs, a.Addr.WithZone(""))
		}
	}
	choice, err := machine.HostChoice(at, []machine.Interface{own}, isHost, c.Rendezvous.Hint)
	return choice.Candidate, err
}

// workerStore describes what MASTER_ADDR and MASTER_PORT would be.
func workerStore(c *config.Config) string {
	v := c.Rendezvous
	port := "a free port"
	switch {
	case v.MasterPort > 0:
		return net.JoinHostPort(v.MasterAddr, strconv.Itoa(v.MasterPort))
	case v.WorkerStorePorts != config.PortRange{}:
		port = "port " + machine.Ports(v.WorkerStorePorts).String()
	}
	switch {
	case v.Local:
		return rdzv.StaticMasterAddr + ", " + port
	case c.MaxNodes > 1:
		return "on the node of rank 0, " + port
	}
	return fmt.Sprintf("%s, %s", v.MasterAddr, port)
}

// workers describes how this node's workers would be started.
func workers(in input) ([]Worker, error) {
	var hypothetical [2][]procs.Spec
	rounds := hypotheticalRounds(in.Config, in.WorkersHost)
	ids := [2]string{in.Config.RunID, in.Config.RunID}
	if freshRunID(in.Config) {
		ids[1] += " or another"
	}
	files := make([]workerlog.LogFiles, in.Spec.LocalWorldSize)
	for i := range files {
		files[i] = in.Logs.Files(i)
	}
	for i, round := range rounds {
		var err error
		hypothetical[i], err = agent.StartSpecs(in.Spec, agent.StartInput{
			Round: &round, RunID: ids[i], Hostname: in.Host,
			Env: in.Env, Files: files,
		})
		if err != nil {
			return nil, err
		}
	}
	out := make([]Worker, in.Spec.LocalWorldSize)
	for i := range out {
		a, b := hypothetical[0][i], hypothetical[1][i]
		out[i] = Worker{
			LocalRank: i, Command: a.Argv, CPUs: topology.FormatCPUList(a.CPUs), Env: known(a.Env, b.Env, in.Inherited),
			Stdout: stream(a.Stdout, b.Stdout), Stderr: stream(a.Stderr, b.Stderr),
		}
		if base := rounds[0].Assignment.GlobalBase; base == rounds[1].Assignment.GlobalBase {
			rank := base + i
			out[i].Rank = &rank
		}
	}
	return out, nil
}

// hypotheticalRounds returns two first rounds that agree in what is known before the rendezvous and differ in the rest.
func hypotheticalRounds(c *config.Config, workersHost bool) [2]rdzv.Round {
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
		// This assumes that all nodes have the same number of workers, and ranksNote says so.
		r.Assignment = rdzv.Assignment{
			GlobalBase: r.Rank * nproc, GlobalWorldSize: r.WorldSize * nproc, RoleBase: r.Rank * nproc,
			RoleWorldSize: r.WorldSize * nproc,
		}
		out[i] = r
	}
	return out
}

// ranksNote describes which ranks are known.
func ranksNote(c *config.Config) string {
	v, alike := c.Rendezvous, fmt.Sprintf("if every node has %s like this one", plural.Of(c.NprocPerNode, "worker"))
	order := "nodes are ordered by host name"
	if v.Hint >= 0 {
		order = fmt.Sprintf("nodes are ordered by their given ranks, here %d", v.Hint)
	}
	switch {
	case c.MaxNodes == 1:
		return "known: there is one node"
	case v.Backend == rdzv.BackendStatic:
		return "known " + alike
	case c.MinNodes == c.MaxNodes:
		return "decided by the rendezvous: " + order + "; the world size is known " + alike
	}
	return "decided by the rendezvous: " + order + "; the number of nodes is open"
}

// known lists the variables that elasticrun sets for a worker and that the launcher's own environment does not have
// with the same value. A value that differs in the two rounds is unknown.
func known(a, b, inherited []string) []Variable {
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

// stream describes where a stream goes, if both rounds agree.
func stream(a, b workerlog.Output) Stream {
	if a.Console != b.Console || a.File != b.File || !slices.Equal(a.Prefix, b.Prefix) {
		return Stream{}
	}
	return Stream{Known: true, Console: a.Console, Prefix: prefix(a.Prefix), File: a.File, FilteredFile: a.FilteredFile}
}

// prefix formats the prefix of a line, with ${time} for its time.
func prefix(p workerlog.Prefix) string { return strings.Join(p, "${time}") }
