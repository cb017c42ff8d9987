package config

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/elasticrun/elasticrun/internal/scheduler"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// workerEnv is set for workers, by torchrun as well: what a worker starts is no part of the job that it belongs to.
const workerEnv = "TORCHELASTIC_RUN_ID"

// inference fills in from the surroundings what was not given.
type inference struct {
	*reader
	config *Config
	facts  scheduler.Facts
	// low and high are --nnodes where that was given, and otherwise what was inferred; else 1.
	low, high int
}

// infer asks the surroundings for what the settings do not say, and writes it into them. It returns what the surroundings
// know of the job. With --standalone, and in a worker of another launcher, nobody is asked.
func (c *Config) infer(r *reader, from surroundings) scheduler.Facts {
	nodes := read(r, "nnodes", parseNodes)
	if _, inWorker := from.env(workerEnv); inWorker || r.flag("standalone") || r.err != nil {
		return scheduler.Facts{}
	}
	facts, err := scheduler.Detect(from.env, from.host)
	in := &inference{reader: r, config: c, facts: facts, low: nodes[0], high: nodes[1]}
	if bad := (*scheduler.Problem)(nil); errors.As(err, &bad) {
		in.problem(bad)
	}
	c.Scheduler, c.Attempt, c.Deadline = facts.Name, facts.Attempt.Is, facts.Deadline.Is
	in.tasks()
	in.launch(from.self)
	in.nodes()
	in.meeting()
	return in.facts
}

// problem refuses surroundings that cannot be understood, unless all that they could tell is given.
func (in *inference) problem(bad *scheduler.Problem) {
	rank := in.given("node-rank") || !in.static()
	if in.given("nnodes") && (in.high == 1 || in.placed() && rank) {
		in.warnings = append(in.warnings, bad.Error())
		return
	}
	in.refuse(bad.Where, bad.Problem+"; or give what would follow from it: --nnodes, --rdzv-endpoint and --node-rank")
}

// tasks decides what several processes on one node are: one agent each only if --nnodes says so.
func (in *inference) tasks() {
	f := &in.facts
	switch {
	case !f.Tasks.Known():
	case in.given("nnodes") && in.high == 1:
		in.note(f.Tasks.Source, "each of these processes runs a job of its own, as the number of nodes is 1")
	case in.given("nnodes") && in.high >= f.Tasks.Is:
		f.Nodes, f.NodeRank = f.Tasks, f.TaskRank
		f.IsHost = scheduler.Value[bool]{Is: f.TaskRank.Is == 0, Source: f.TaskRank.Source}
	default:
		where := f.Tasks.Source
		if f.Nodes.Known() {
			where += " " + f.Nodes.Source
		}
		in.refuse(where, fmt.Sprintf("several processes were started on a node, and one agent there starts all workers: "+
			"start one a node (%s), or give --nnodes=%d to make each an agent of its own, or --standalone for a job of its own in each",
			f.OneEach, f.Tasks.Is))
	}
}

// launch decides whether agents have to be started on other nodes. Who names the meeting point or the rank does that himself.
func (in *inference) launch(self []string) {
	f := &in.facts
	switch {
	case f.Launch == nil:
	case in.given("nnodes") && in.high == 1:
		f.Nodes = scheduler.Value[int]{}
	case in.placed() || in.given("node-rank"):
		if !in.given("nnodes") {
			in.note(f.Nodes.Source, "this is a job of one node, as --nnodes is not given")
		}
		f.Nodes, f.RunID, f.IsHost, f.Endpoint = scheduler.Value[int]{}, scheduler.Value[string]{}, scheduler.Value[bool]{}, scheduler.Value[string]{}
	default:
		in.config.Launch = scheduler.LaunchCommand(f.Launch, self)
	}
}

// nodes takes in how many nodes there are, or compares it with what was given.
func (in *inference) nodes() {
	f, known := &in.facts, in.facts.Nodes
	if !in.given("nnodes") || in.config.Launch != nil {
		in.warnings = append(in.warnings, f.Notes...)
	}
	switch {
	case in.err != nil:
	case !in.given("nnodes"):
		if known.Known() {
			in.set("nnodes", strconv.Itoa(known.Is), known.Source)
			in.low, in.high = known.Is, known.Is
		} else if f.NoNodes != nil {
			in.refuse(f.NoNodes.Where, f.NoNodes.Problem)
		}
	case !known.Known():
	case in.low > known.Is && !in.placed():
		in.fail("nnodes", fmt.Sprintf("but there are only %d (%s): give a smaller number, or start more", known.Is, known.Source))
	case in.low > known.Is:
		in.warn("nnodes", fmt.Sprintf("only %d of them are started here (%s): the job waits for the others", known.Is, known.Source))
	case in.high == 1 && known.Is > 1:
		in.warn("nnodes", fmt.Sprintf("there are %d nodes (%s), and each runs a job of its own", known.Is, known.Source))
	case in.high < known.Is:
		in.warn("nnodes", fmt.Sprintf("there are %d nodes (%s): those above the maximum are spares", known.Is, known.Source))
	}
}

// meeting takes in where nodes meet, and who this one is.
func (in *inference) meeting() {
	f := &in.facts
	if in.err != nil || in.high == 1 {
		return
	}
	static, backend := in.static(), in.text("rdzv-backend")
	if f.NodeRank.Known() && !in.given("node-rank") {
		in.set("node-rank", strconv.Itoa(f.NodeRank.Is), f.NodeRank.Source)
	}
	usable := !f.RunIDReturns || backend != rdzv.BackendEtcd
	// Who says where nodes meet may have started some in another way, such as a step for each. To them the scheduler tells another id, and
	// in a step of one node nobody knows how many there are.
	elsewhere := in.placed() && in.high > f.Nodes.Is
	if elsewhere && f.Nodes.Is == 1 {
		f.Nodes = scheduler.Value[int]{}
	}
	if usable && !elsewhere && f.RunID.Known() && !in.given("rdzv-id") {
		in.set("rdzv-id", f.RunID.Is, f.RunID.Source)
	}
	switch {
	case !f.Endpoint.Known() || in.placed():
	case static:
		in.staticMaster(f.Endpoint)
	case backend == "" || backend == rdzv.BackendC10d:
		in.set("rdzv-endpoint", f.Endpoint.Is, f.Endpoint.Source)
		if f.IsHost.Known() {
			in.config.Rendezvous.IsHost = &f.IsHost.Is
		}
	}
}

// staticMaster makes the endpoint the master address.
func (in *inference) staticMaster(endpoint scheduler.Value[string]) {
	host, port, err := parseEndpoint(endpoint.Is)
	if err != nil {
		in.refuse(endpoint.Source, err.Error())
		return
	}
	in.set("master-addr", host, endpoint.Source)
	if port >= 0 && !in.given("master-port") {
		in.set("master-port", strconv.Itoa(port), endpoint.Source)
	}
}

// placed tells whether the user has said where nodes meet.
func (in *inference) placed() bool { return in.given("rdzv-endpoint") || in.given("master-addr") }

// static tells whether the backend is static for a job of several nodes; see backendOf.
func (in *inference) static() bool {
	flags := rendezvousFlags{
		MaxNodes: 2, Backend: in.text("rdzv-backend"), MasterAddr: in.text("master-addr"), MasterPort: -1, NodeRankGiven: in.given("node-rank"),
	}
	if in.given("master-port") {
		flags.MasterPort = 0 // whatever it is
	}
	return backendOf(flags) == rdzv.BackendStatic
}

// set takes a value from the surroundings.
func (in *inference) set(name, value, source string) {
	s := Setting{Name: name, Value: value, Source: Source{Kind: FromScheduler, Name: source}}
	in.settings[name] = s
	in.config.Inferred = append(in.config.Inferred, s)
}

func (in *inference) note(where, text string) { in.warnings = append(in.warnings, where+": "+text) }

func (in *inference) refuse(where, problem string) {
	if in.err == nil {
		in.err = &UsageError{Where: where, Problem: problem}
	}
}

// expectedNodes returns how many nodes will come to a job of minimum to maximum nodes, or 0 where nobody knows.
func expectedNodes(minimum, maximum int, started scheduler.Value[int]) int {
	switch {
	case minimum == maximum:
		return maximum
	case !started.Known():
		return 0
	}
	return min(max(started.Is, minimum), maximum)
}

// candidatePorts returns the ports of a c10d endpoint, first choice first: several where neither the user nor the backend
// names one, so that jobs that share a machine do not get into each other's way.
func candidatePorts(r *reader, port int, key string) []int {
	endpoint := r.settings["rdzv-endpoint"]
	if endpoint.Source.Kind == FromScheduler && key != "" {
		if _, own, err := parseEndpoint(endpoint.Value); err == nil && own < 0 {
			return scheduler.Ports(key)
		}
	}
	return []int{port}
}
