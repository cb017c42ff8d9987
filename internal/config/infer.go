package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/internal/scheduler"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

// workerEnv is set in workers, by torchrun too. A launcher that runs inside a worker starts a separate job, not a part
// of the worker's job.
const workerEnv = "TORCHELASTIC_RUN_ID"

// inference completes the settings with the facts of a scheduler.
type inference struct {
	*reader
	config *Config
	facts  scheduler.Facts
	// low and high are --nnodes if it was given, else the inferred number, else 1.
	low, high int
}

// infer completes the settings with the facts of the scheduler that the process runs under, and returns these facts. It
// does nothing with --standalone, and in a worker of another launcher.
func (c *Config) infer(r *reader, from surroundings) scheduler.Facts {
	nodes := value[nodeRange](r, "nnodes")
	facts, err := scheduler.Detect(from.env, from.host)
	c.SchedulerJob = schedulerJob(facts)
	if _, inWorker := from.env(workerEnv); inWorker || r.isOn("standalone") || r.err != nil {
		return scheduler.Facts{}
	}
	in := &inference{reader: r, config: c, facts: facts, low: nodes.low, high: nodes.high}
	if bad := (*scheduler.Problem)(nil); errors.As(err, &bad) {
		in.problem(bad)
	}
	c.Scheduler, c.Attempt, c.Deadline = facts.Name, facts.Attempt.Is, facts.Deadline.Is
	in.checkOneMachine()
	in.tasks()
	in.launch(from.self)
	in.nodes()
	in.rendezvous()
	return in.facts
}

// schedulerJob names the scheduler's job; empty if it is unknown.
func schedulerJob(f scheduler.Facts) string {
	if f.Job == "" {
		return ""
	}
	return f.Name + " " + f.Job
}

// problem refuses an environment that cannot be understood, unless flags set everything that it would provide.
func (in *inference) problem(bad *scheduler.Problem) {
	rank := in.given("node-rank") || !in.static()
	if in.given("nnodes") && (in.high == 1 || in.placed() && rank) {
		in.warnings = append(in.warnings, bad.Error())
		return
	}
	in.refuse(bad.Where, bad.Problem+"; or give --nnodes, --rdzv-endpoint and --node-rank")
}

// tasks decides whether several launchers on one node are agents of one job. Each is an agent only if --nnodes says so.
func (in *inference) tasks() {
	f := &in.facts
	switch {
	case !f.Tasks.Known():
	case in.given("nnodes") && in.high == 1:
		in.note(f.Tasks.Source, "each of these processes runs a job of its own, because the number of nodes is 1")
	case in.given("nnodes") && in.high >= f.Tasks.Is:
		f.Nodes, f.NodeRank, f.MoreHosts = f.Tasks, f.TaskRank, nil // the hosts have other ranks
		f.IsHost = scheduler.Value[bool]{Is: f.TaskRank.Is == 0, Source: f.TaskRank.Source}
	default:
		where := f.Tasks.Source
		if f.Nodes.Known() {
			where += " " + f.Nodes.Source
		}
		in.refuse(where, fmt.Sprintf("several processes were started on a node, but one agent starts all workers of a node: "+
			"start one process per node (%s), or give --nnodes=%d to make each process an agent, or --standalone to run a "+
			"job in each",
			f.OneEach, f.Tasks.Is))
	}
}

// launch decides whether agents must be started on the other nodes. A user who gives the endpoint or the rank starts
// the agents himself.
func (in *inference) launch(self []string) {
	f := &in.facts
	switch {
	case f.Launch == nil:
	case in.given("nnodes") && in.high == 1:
		f.Nodes = scheduler.Value[int]{}
	case in.placed() || in.given("node-rank"):
		if !in.given("nnodes") {
			in.note(f.Nodes.Source, "this is a job of one node, because --nnodes is not given")
		}
		f.Nodes, f.IsHost = scheduler.Value[int]{}, scheduler.Value[bool]{}
		f.RunID, f.Endpoint = scheduler.Value[string]{}, scheduler.Value[string]{}
	default:
		in.config.Launch = scheduler.LaunchCommand(f.Launch, self)
	}
}

// nodes infers the number of nodes, or compares it with --nnodes.
func (in *inference) nodes() {
	f, started := &in.facts, in.facts.Nodes
	if !in.given("nnodes") || in.config.Launch != nil {
		in.warnings = append(in.warnings, f.Notes...)
	}
	switch {
	case in.err != nil:
	case !in.given("nnodes"):
		if started.Known() {
			in.set("nnodes", strconv.Itoa(started.Is), started.Source)
			in.low, in.high = started.Is, started.Is
		} else if f.NoNodes != nil {
			in.refuse(f.NoNodes.Where, f.NoNodes.Problem)
		}
	case !started.Known():
	case in.low > started.Is && !in.placed():
		in.fail(
			"nnodes",
			fmt.Sprintf("the scheduler started only %d (%s): give a smaller number, or start more", started.Is, started.Source),
		)
	case in.low > started.Is:
		in.warn(
			"nnodes",
			fmt.Sprintf("the scheduler started only %d (%s): the job waits for the others", started.Is, started.Source),
		)
	case in.high == 1 && started.Is > 1:
		in.warn("nnodes", fmt.Sprintf("there are %d nodes (%s), and each runs a job of its own", started.Is, started.Source))
	case in.high < started.Is:
		in.warn(
			"nnodes",
			fmt.Sprintf("there are %d nodes (%s): those above the maximum are spares", started.Is, started.Source),
		)
	}
}

// rendezvous infers the endpoint, the run id and the rank of this node.
func (in *inference) rendezvous() {
	f := &in.facts
	if in.err != nil || in.high == 1 {
		return
	}
	static, backend := in.static(), in.text("rdzv-backend")
	if f.NodeRank.Known() && !in.given("node-rank") {
		in.set("node-rank", strconv.Itoa(f.NodeRank.Is), f.NodeRank.Source)
	}
	usable := !f.RunIDReused || backend != rdzv.BackendEtcd
	// A user who gives the endpoint may have started other nodes in another way, such as by a step for each node. The
	// scheduler gives those nodes another id, and in a step of one node the number of nodes is unknown.
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
		more := in.moreEndpoints()
		in.set("rdzv-endpoint", strings.Join(append([]string{f.Endpoint.Is}, more...), ","), f.Endpoint.Source)
		if f.IsHost.Known() {
			in.config.Rendezvous.IsHost = &f.IsHost.Is
			in.config.Rendezvous.OwnEndpoint = ownEndpoint(f, len(more))
		}
	}
}

// moreEndpoints returns the endpoints after the first one, where newcomers find a job that has lost its first node.
// Jobs of two nodes have none: their store stays at the first.
func (in *inference) moreEndpoints() []string {
	if in.high < 3 {
		return nil
	}
	_, port, err := rdzvconf.ParseEndpoint(in.facts.Endpoint.Is)
	var more []string
	for _, host := range in.facts.MoreHosts {
		if err == nil && port >= 0 {
			host = net.JoinHostPort(host, strconv.Itoa(port))
		}
		more = append(more, host)
	}
	return more
}

// ownEndpoint returns the index of the endpoint that is this node, of one and more others; -1 for none.
func ownEndpoint(f *scheduler.Facts, more int) *int {
	own := -1
	switch {
	case f.IsHost.Is:
		own = 0
	case f.NodeRank.Known() && f.NodeRank.Is > 0 && f.NodeRank.Is <= more:
		own = f.NodeRank.Is
	}
	return &own
}

// staticMaster makes the endpoint the master address.
func (in *inference) staticMaster(endpoint scheduler.Value[string]) {
	host, port, err := rdzvconf.ParseEndpoint(endpoint.Is)
	if err != nil {
		in.refuse(endpoint.Source, err.Error())
		return
	}
	in.set("master-addr", host, endpoint.Source)
	if port >= 0 && !in.given("master-port") {
		in.set("master-port", strconv.Itoa(port), endpoint.Source)
	}
}

// placed reports whether the user gave the endpoint or the master address.
func (in *inference) placed() bool { return in.given("rdzv-endpoint") || in.given("master-addr") }

// static reports whether the backend is static if the job has several nodes; see [rendezvousFlags.backend].
func (in *inference) static() bool {
	flags := rendezvousFlags{
		MaxNodes: 2, Backend: in.text("rdzv-backend"), MasterAddr: in.text("master-addr"), MasterPort: -1,
		NodeRankGiven: in.given("node-rank"),
	}
	if in.given("master-port") {
		flags.MasterPort = 0 // any valid port
	}
	return flags.backend() == rdzv.BackendStatic
}

// set records an inferred value.
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

// expectedNodes returns the number of nodes that will join a job of minimum to maximum nodes, or 0 if it is unknown.
func expectedNodes(minimum, maximum int, started scheduler.Value[int]) int {
	switch {
	case minimum == maximum:
		return maximum
	case !started.Known():
		return 0
	}
	return min(max(started.Is, minimum), maximum)
}

// candidatePorts returns the ports of a c10d endpoint, first choice first. There are several if the scheduler
// provided the endpoint without a port, so that jobs on the same machine do not collide.
func candidatePorts(r *reader, port int, key string) []int {
	endpoint := r.settings["rdzv-endpoint"]
	if endpoint.Source.Kind == FromScheduler && key != "" {
		first, _, _ := strings.Cut(endpoint.Value, ",")
		if _, own, err := rdzvconf.ParseEndpoint(first); err == nil && own < 0 {
			return scheduler.Ports(key)
		}
	}
	return []int{port}
}
