package config

import (
	"cmp"
	"os"

	"github.com/elasticrun/elasticrun/internal/scheduler"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

// Status is the resolved configuration of elasticrun status.
type Status struct {
	// Addr is the --status-addr of one agent; nil for all agents of a job.
	Addr *HostPort `flag:"addr"`
	// RunID and Rendezvous are those of the job, if Addr is nil. Rendezvous has only the fields that lead to the store.
	RunID      string
	Rendezvous Rendezvous
	// InSlurm says that the endpoint is Slurm's name of a node, which need not be a host name.
	InSlurm bool
	// JSON asks for JSON instead of text.
	JSON bool `flag:"json"`
	// Watch repeats the status until the job has ended.
	Watch bool `flag:"watch"`
	// Warnings are one line each.
	Warnings []string
}

// StatusFlags returns the table of elasticrun status.
func StatusFlags() []Flag {
	return commandFlags(
		"status",
		Flag{
			Name:        "addr",
			Kind:        KindString,
			Placeholder: "HOST:PORT",
			Help:        "Ask one agent, at its --status-addr. :PORT is on this machine.",
			parse:       as(parseStatusAddr),
		},
		Flag{Name: "json", Kind: KindBool, Help: "Print JSON: one object, or with --watch one object per line."},
		Flag{Name: "watch", Kind: KindBool, Help: "Show the status every two seconds until the job has ended."},
		inherit("rdzv-backend", withHelp("Rendezvous backend of the job: c10d, etcd or static. Default: c10d.")),
		inherit("rdzv-endpoint", withHelp("Where the job's nodes meet, as given to its agents.")),
		inherit(
			"rdzv-id",
			withHelp(
				"Run id of the job. A Slurm job without a run id of its own has slurm-JOB.STEP. Default: \"none\", the id of a "+
					"job of several nodes without a run id.",
			),
		),
		inherit("rdzv-conf", withHelp("The job's rendezvous options. Only those that lead to the store are used.")),
		inherit("rdzv-secret-file"),
		inherit("config"),
		inherit("help"),
	)
}

// LoadStatus resolves the arguments of elasticrun status, together with the environment and the config file. Its errors
// are ErrHelp and *UsageError.
func LoadStatus(args []string) (*Status, error) {
	r, err := readFlagsOnly("status", StatusFlags(), args, true)
	if err != nil {
		return nil, err
	}
	return resolveStatus(r, surroundings{env: os.LookupEnv, host: thisHost(), secret: readSecret})
}

func resolveStatus(r *reader, from surroundings) (*Status, error) {
	c := &Status{}
	r.decode(c)
	if !r.given("addr") {
		c.inferJob(r, from)
	}
	switch {
	case r.given("addr"):
		c.checkAddr(r)
	case r.text("rdzv-endpoint") == "":
		return nil, &UsageError{
			Problem: "which job? Give --rdzv-endpoint=HOST[:PORT] and, if the job has one, --rdzv-id, both as given to its " +
				"agents; " +
				"or --addr=HOST:PORT, the --status-addr of one agent, which also works for a job of one node",
		}
	default:
		c.readJob(r, from)
	}
	if r.err != nil {
		return nil, r.err
	}
	c.Warnings = r.printableWarnings()
	return c, nil
}

// inferJob takes the endpoint and the run id from the scheduler, if this process runs in a job. In Slurm they are
// those of the job's first step, because this process is in another step or in none.
func (c *Status) inferJob(r *reader, from surroundings) {
	facts, err := scheduler.Detect(from.env, from.host)
	if facts.Name == scheduler.Slurm {
		facts = scheduler.FirstStep(from.env, facts)
	}
	if r.given("rdzv-endpoint") || r.text("rdzv-backend") == rdzv.BackendEtcd || err != nil || !facts.Endpoint.Known() {
		return
	}
	infer := func(name, value, source string) {
		r.settings[name] = Setting{Name: name, Value: value, Source: Source{Kind: FromScheduler, Name: source}}
	}
	c.InSlurm = facts.Name == scheduler.Slurm
	infer("rdzv-endpoint", facts.Endpoint.Is, facts.Endpoint.Source)
	if id := facts.RunID; !r.given("rdzv-id") && id.Known() {
		infer("rdzv-id", id.Is, id.Source)
		r.warnings = append(r.warnings, "asking for the job "+id.Is+" ("+id.Source+"); --rdzv-id asks for another")
	}
}

// checkAddr checks --addr. Environment and config file may describe a job, but the command line must not.
func (c *Status) checkAddr(r *reader) {
	if r.err == nil && c.Addr.Port == 0 {
		r.fail("addr", "needs the port of the agent")
	}
	for _, name := range []string{"rdzv-endpoint", "rdzv-id", "rdzv-backend", "rdzv-conf", "rdzv-secret-file"} {
		if r.settings[name].Source.Kind == FromFlag {
			r.fail(name, "cannot be combined with --addr, which asks one agent")
		}
	}
}

// readJob reads where the job's nodes meet, by the rules of a job of several nodes.
func (c *Status) readJob(r *reader, from surroundings) {
	in := rendezvousFlags{
		MaxNodes: 2, Backend: cmp.Or(r.text("rdzv-backend"), rdzv.BackendC10d), Endpoint: r.text("rdzv-endpoint"),
		RunID: r.text("rdzv-id"), MasterPort: -1,
	}
	checkRunID(r, in.RunID)
	items := value[[]rdzvconf.Item](r, "rdzv-conf")
	checkBackend(r, in)
	endpoints := readEndpoints(r, in)
	backend := in.backend()
	if r.err == nil && !isKnown(backend) {
		r.fail("rdzv-backend", "must be one of c10d, etcd, static")
	}
	if r.err != nil {
		return
	}
	v := &c.Rendezvous
	*v = Rendezvous{Backend: backend, Endpoint: in.Endpoint, Endpoints: endpoints, Secret: agentsSecret(r, from)}
	v.readConf(r, items, from)
	c.RunID = cmp.Or(in.RunID, NoRunID)
	if backend != rdzv.BackendEtcd {
		v.Ports = []int{endpoints[0].Port}
		if _, port, err := rdzvconf.ParseEndpoint(in.Endpoint); err == nil && port < 0 && scheduler.PortKey(c.RunID) != "" {
			v.Ports = scheduler.Ports(scheduler.PortKey(c.RunID)) // as the job's agents have inferred them
		}
	}
}
