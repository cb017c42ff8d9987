package config

// Stop is the resolved configuration of elasticrun stop.
type Stop struct{ Target }

// stopFlags returns the table of elasticrun stop.
func stopFlags() []Flag { return commandFlags("stop", targetFlags()...) }

// LoadStop resolves the arguments of elasticrun stop, together with the environment and the config file. Its errors are
// ErrHelp and *UsageError.
func LoadStop(args []string) (*Stop, error) {
	r, err := readFlagsOnly("stop", stopFlags(), args)
	if err != nil {
		return nil, err
	}
	c := &Stop{r.readTarget(commandSurroundings())}
	c.Warnings = r.printableWarnings()
	return c, r.err
}

// stopCommand describes elasticrun stop.
func stopCommand() Subcommand {
	return Subcommand{
		Name: "stop", Short: "end a job on all of its nodes", Args: "[flags]", flags: stopFlags,
		Intro: `End a job on all of its nodes: no round begins any more, and every launcher stops its workers and
ends with the exit code 76. With --rdzv-endpoint it is any job that this machine can reach, and
needs the job's secret. Else it is the job of yours on this machine with --rdzv-id, or the only one
if it was started in the same directory.
Inside a Slurm job or a pod it is the job of yours that runs in it here; if there is none, the job
at the endpoint that the launchers infer.
`,
		Outro: `The command waits up to 15 s until the end of the job is certain; workers may still be stopping
then. Exit code: 0 if the job was closed; 73 if it had finished by itself; 75 if the job cannot be
reached or did not confirm its end, or only the launchers here could be ended; 2 if the flags or the
secret are refused, or several jobs could be meant.
`,
	}
}
