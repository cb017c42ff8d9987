package config

// Status is the resolved configuration of elasticrun status.
type Status struct {
	// Addr is the --status-addr of one agent; nil for all agents of a job.
	Addr *HostPort `flag:"addr"`
	// Target is the job, if Addr is nil.
	Target
	// JSON asks for JSON instead of text.
	JSON bool `flag:"json"`
	// Watch repeats the status until the job has ended.
	Watch bool `flag:"watch"`
}

// statusFlags returns the table of elasticrun status.
func statusFlags() []Flag {
	return commandFlags("status", append([]Flag{
		{
			Name:        "addr",
			Kind:        KindString,
			Placeholder: "HOST:PORT",
			Help:        "Ask one agent, at its --status-addr. :PORT is on this machine.",
			parse:       as(parseStatusAddr),
		},
		{Name: "json", Kind: KindBool, Help: "Print JSON: one object, or with --watch one object per line."},
		{Name: "watch", Kind: KindBool, Help: "Show the status every two seconds until the job has ended."},
	}, targetFlags()...)...)
}

// LoadStatus resolves the arguments of elasticrun status, together with the environment and the config file. Its errors
// are ErrHelp and *UsageError.
func LoadStatus(args []string) (*Status, error) {
	r, err := readFlagsOnly("status", statusFlags(), args)
	if err != nil {
		return nil, err
	}
	return resolveStatus(r, commandSurroundings())
}

func resolveStatus(r *reader, from surroundings) (*Status, error) {
	c := &Status{}
	r.decode(c)
	if r.given("addr") {
		c.checkAddr(r)
	} else {
		c.Target = r.readTarget(from)
	}
	c.Warnings = r.printableWarnings()
	return c, r.err
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

// statusCommand describes elasticrun status.
func statusCommand() Subcommand {
	return Subcommand{
		Name: "status", Short: "show what a job is doing", Args: "[flags]", flags: statusFlags,
		Intro: `Show what a job is doing: its nodes and workers, their resource use and their last lines. With
--rdzv-endpoint it shows all nodes of a job; with --addr it shows the one node whose --status-addr
that is. Without both it shows what runs on this machine of the only job here that is yours, or of
the one with --rdzv-id.
`,
		Outro: `The command only reads; it does not join the job. Exit code: 0, also after SIGINT; 2 if the store
has no such job, or several run on this machine; 75 if nothing answers, or no job runs here.
`,
	}
}
