package config

// PS is the resolved configuration of elasticrun ps.
type PS struct {
	// JSON asks for JSON instead of text.
	JSON bool `flag:"json"`
}

// psFlags returns the table of elasticrun ps.
func psFlags() []Flag { return withJSON("ps") }

// LoadPS resolves the arguments of elasticrun ps. Its errors are ErrHelp and *UsageError.
func LoadPS(args []string) (*PS, error) {
	r, err := readFlagsOnly("ps", psFlags(), args)
	if err != nil {
		return nil, err
	}
	c := &PS{}
	r.decode(c)
	return c, r.err
}

// psCommand describes elasticrun ps.
func psCommand() Subcommand {
	return Subcommand{
		Name: "ps", Short: "list the jobs on this machine", Args: "[--json]", flags: psFlags,
		Intro: `List your jobs on this machine, one line each: run id, script, nodes, workers, state, restarts used
and allowed, start, launchers' pids and log folder. root sees the jobs of all users.
`,
		Outro: "Exit code: 0, also without jobs; 2 if the flags are refused.\n",
	}
}
