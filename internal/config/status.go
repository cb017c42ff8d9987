package config

import (
	"cmp"
	"os"

	"github.com/elasticrun/elasticrun/internal/scheduler"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Status is everything that elasticrun status was told, checked and resolved.
type Status struct {
	// Addr is the --status-addr of one agent; nil for all of a job.
	Addr *HostPort
	// RunID and Rendezvous are those of the job, where Addr is nil. Of Rendezvous, what leads to the store counts.
	RunID      string
	Rendezvous Rendezvous
	// InSlurm says that the endpoint is a node as Slurm names it, which need not be a host's name.
	InSlurm bool
	// JSON asks for JSON in place of text.
	JSON bool
	// Watch shows it again and again.
	Watch bool
	// Warnings are one line each.
	Warnings []string
}

// StatusFlags returns the table of elasticrun status.
func StatusFlags() []Flag {
	flags := []Flag{
		{Name: "addr", Kind: KindString, Placeholder: "HOST:PORT", Help: "Ask one agent, by its --status-addr. :PORT is one of this machine."},
		{Name: "json", Kind: KindBool, Help: "Print JSON: one object, or with --watch one a line."},
		{Name: "watch", Kind: KindBool, Help: "Show it every two seconds, until the job has ended."},
	}
	for _, name := range []string{"rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "rdzv-secret-file", "config", "help"} {
		f, _ := findFlag(Flags(), name)
		switch name {
		case "rdzv-backend":
			f.Help = "Rendezvous backend of the job: c10d, etcd or static. Default: c10d."
		case "rdzv-endpoint":
			f.Help = "Where the job's nodes meet, as the agents were told."
		case "rdzv-id":
			f.Help = "Run id of the job; slurm-JOB.STEP of one in Slurm that was given none. Default: none, as for a job of several nodes that nobody gave one."
		case "rdzv-conf":
			f.Help = "The job's options, of which those count that lead to the store."
		}
		flags = append(flags, f)
	}
	for i := range flags {
		flags[i].Group, flags[i].CommandLineOnly = groupStatus, true
	}
	return flags
}

// LoadStatus resolves the arguments of elasticrun status, together with the environment and the config file. Its errors are ErrHelp
// and *UsageError.
func LoadStatus(args []string) (*Status, error) {
	p := argParser{flags: StatusFlags(), hint: "elasticrun status --help lists them"}
	line, err := p.split(args)
	if err != nil {
		return nil, err
	}
	if len(line.command) > 0 {
		return nil, &UsageError{Where: shown(line.command[0]), Problem: "elasticrun status takes flags only; to run a script of that name write ./status"}
	}
	settings, _, err := gather(p.flags, line.options)
	if err != nil {
		return nil, err
	}
	return resolveStatus(settings, surroundings{env: os.LookupEnv, host: thisHost(), secret: readSecret})
}

func resolveStatus(settings []Setting, from surroundings) (*Status, error) {
	r := &reader{settings: make(map[string]Setting, len(settings))}
	for _, s := range settings {
		r.settings[s.Name] = s
	}
	c := &Status{JSON: r.flag("json"), Watch: r.flag("watch")}
	if !r.given("addr") {
		c.inferJob(r, from)
	}
	switch {
	case r.given("addr"):
		c.readAddr(r)
	case r.text("rdzv-endpoint") == "":
		return nil, &UsageError{Problem: "whom to ask? Give --rdzv-endpoint=HOST[:PORT], and the job's --rdzv-id if it has one, as its agents were given; " +
			"or --addr=HOST:PORT, the --status-addr of one of them, which is the way to ask a job of one node"}
	default:
		c.readJob(r, from)
	}
	if r.err != nil {
		return nil, r.err
	}
	c.Warnings = printable(r.warnings)
	return c, nil
}

// inferJob takes from the surroundings where the nodes of the job meet that this process is in. In Slurm that is the first step of the job: whoever
// asks is in another, or in none.
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

// readAddr reads whom of the agents to ask. What the environment and the config file say of the job does not count then.
func (c *Status) readAddr(r *reader) {
	at := read(r, "addr", parseStatusAddr)
	if c.Addr = &at; at.Port == 0 {
		r.fail("addr", "needs the port that the agent has")
	}
	for _, name := range []string{"rdzv-endpoint", "rdzv-id", "rdzv-backend", "rdzv-conf", "rdzv-secret-file"} {
		if r.settings[name].Source.Kind == FromFlag {
			r.fail(name, "cannot be combined with --addr, which asks one agent")
		}
	}
}

// readJob reads where the job's nodes meet, by the rules of a job of several.
func (c *Status) readJob(r *reader, from surroundings) {
	in := readStatusRendezvous(r)
	items := read(r, "rdzv-conf", parseConf)
	checkBackend(r, in)
	endpoints := checkEndpoint(r, in)
	backend := backendOf(in)
	if r.err == nil && !known(backend) {
		r.fail("rdzv-backend", "must be one of c10d, etcd, static")
	}
	if r.err != nil {
		return
	}
	job := &Config{Rendezvous: Rendezvous{
		Backend: backend, Endpoint: in.Endpoint, Endpoints: endpoints, Secret: agentsSecret(r, from),
	}}
	job.readConf(r, items, from)
	c.RunID, c.Rendezvous = cmp.Or(in.RunID, NoRunID), job.Rendezvous
	if backend != rdzv.BackendEtcd {
		c.Rendezvous.Ports = []int{endpoints[0].Port}
		if _, own, err := parseEndpoint(in.Endpoint); err == nil && own < 0 && scheduler.PortKey(c.RunID) != "" {
			c.Rendezvous.Ports = scheduler.Ports(scheduler.PortKey(c.RunID)) // as its agents have inferred them
		}
	}
}

func readStatusRendezvous(r *reader) rendezvousFlags {
	in := rendezvousFlags{
		MaxNodes: 2, Backend: cmp.Or(r.text("rdzv-backend"), rdzv.BackendC10d), Endpoint: r.text("rdzv-endpoint"), RunID: r.text("rdzv-id"), MasterPort: -1,
	}
	checkRunID(r, in.RunID)
	return in
}

// parseStatusAddr reads HOST:PORT; without a host it is this machine's loopback address, as what is told there is not for everybody.
func parseStatusAddr(s string) (HostPort, error) {
	at, err := parseListen(s)
	if err == nil && at.Host == "" {
		at.Host = "127.0.0.1"
	}
	return at, err
}
