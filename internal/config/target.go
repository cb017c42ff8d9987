package config

import (
	"cmp"
	"os"
	"strings"

	"github.com/elasticrun/elasticrun/internal/scheduler"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

// Target is the job that a command asks for.
type Target struct {
	// Local says that there is no endpoint, or a local one: the job runs on this machine. RunID is then empty if any job
	// will do.
	Local bool
	RunID string
	// Inferred is set if the endpoint comes from the scheduler.
	Inferred *InferredTarget
	// Rendezvous has only the fields that lead to the job's store.
	Rendezvous Rendezvous
	// InSlurm says that the endpoint is Slurm's name of a node, which need not be a host name.
	InSlurm bool
	// SlurmJob is the id of the Slurm job in which the job runs, if its run id shows it; else empty.
	SlurmJob string
	// Warnings are one line each.
	Warnings []string
}

// InferredTarget selects a job on this machine that a command prefers to the one at the inferred endpoint.
type InferredTarget struct {
	// RunID is the run id that the user gave; empty for any job that was started in SchedulerJob.
	RunID string
	// SchedulerJob is as in Config. If it and RunID are empty, no job of this machine is meant.
	SchedulerJob string
	// Note says, for people, which job the endpoint is asked for; empty if the user gave its run id.
	Note string
}

// targetFlags are the flags that select a Target.
func targetFlags() []Flag {
	return []Flag{
		inherit("rdzv-backend", withHelp("Rendezvous backend of the job: c10d, etcd or static. Default: c10d.")),
		inherit(
			"rdzv-endpoint",
			withHelp("Where the job's nodes meet, as given to its agents. Default: the job is one of yours on this machine."),
		),
		inherit(
			"rdzv-id",
			withHelp(
				"Run id of the job; its start is enough for a job of yours on this machine. "+
					"A Slurm job without a run id of its own has slurm-JOB.STEP. Default: \"none\", the id of a "+
					"job of several nodes without a run id; without --rdzv-endpoint, your only job on this machine.",
			),
		),
		inherit("rdzv-conf", withHelp("The job's rendezvous options. Only those that lead to the store are used.")),
		inherit("rdzv-secret-file"),
		inherit("config"),
		inherit("help"),
	}
}

// commandSurroundings returns the surroundings of a command that finds a Target.
func commandSurroundings() surroundings {
	return surroundings{env: os.LookupEnv, host: thisHost(), secret: readSecret, certificates: openCertificates}
}

// readTarget reads the target from flags, environment, config file and scheduler.
func (r *reader) readTarget(from surroundings) (c Target) {
	if r.given("rdzv-id") && strings.TrimSpace(r.text("rdzv-id")) == "" { // a shell's variable that is not set
		r.fail("rdzv-id", "must not be empty: give the job's run id, which elasticrun ps lists")
	}
	c.inferJob(r, from)
	local := r.text("rdzv-endpoint") == LocalEndpoint
	if r.text("rdzv-endpoint") != "" && !local {
		c.readJob(r, from)
		return c
	}
	c.Local, c.RunID = true, r.text("rdzv-id")
	c.Rendezvous.Local = local
	if c.RunID != "" {
		checkRunID(r, c.RunID)
	}
	for _, name := range remoteFlags() {
		if r.settings[name].Source.Kind == FromFlag && !local {
			r.fail(name, "needs --rdzv-endpoint; a job on this machine is found without")
		}
	}
	return c
}

// remoteFlags returns the flags that describe a job's store.
func remoteFlags() []string { return []string{"rdzv-backend", "rdzv-conf", "rdzv-secret-file"} }

// inferJob takes the endpoint and the run id from the scheduler, if this process runs in a job. In Slurm they are
// those of the job's first step, because this process is in another step or in none.
func (c *Target) inferJob(r *reader, from surroundings) {
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
	c.Inferred = &InferredTarget{RunID: r.text("rdzv-id"), SchedulerJob: schedulerJob(facts)}
	for _, name := range remoteFlags() {
		if r.settings[name].Source.Kind == FromFlag {
			c.Inferred = &InferredTarget{} // the user means a store
		}
	}
	infer("rdzv-endpoint", facts.Endpoint.Is, facts.Endpoint.Source)
	if id := facts.RunID; !r.given("rdzv-id") && id.Known() {
		infer("rdzv-id", id.Is, id.Source)
		c.Inferred.Note = "asking for the job " + id.Is + " (" + id.Source + "); --rdzv-id asks for another"
	}
}

// readJob reads where the job's nodes meet, by the rules of a job of several nodes.
func (c *Target) readJob(r *reader, from surroundings) {
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
	*v = Rendezvous{Backend: backend, Endpoint: in.Endpoint, Endpoints: endpoints}
	v.Secret, v.SecretSource = agentsSecret(r, from)
	v.readConf(r, items, from)
	v.checkCertificates(r, from)
	c.RunID = cmp.Or(in.RunID, NoRunID)
	c.SlurmJob, _, _ = strings.Cut(scheduler.PortKey(c.RunID), ".")
	if backend != rdzv.BackendEtcd {
		v.Ports = []int{endpoints[0].Port}
		if _, port, err := rdzvconf.ParseEndpoint(in.Endpoint); err == nil && port < 0 && scheduler.PortKey(c.RunID) != "" {
			v.Ports = scheduler.Ports(scheduler.PortKey(c.RunID)) // as the job's agents have inferred them
		}
	}
}
