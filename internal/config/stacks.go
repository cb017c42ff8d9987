package config

import "github.com/elasticrun/elasticrun/pkg/workerlog"

// Stacks is the resolved configuration of elasticrun stacks.
type Stacks struct {
	Target
	// Ranks are the global ranks to show; nil is all.
	Ranks workerlog.RankSet `flag:"rank"`
	// AllThreads asks for all threads of each worker instead of the main one.
	AllThreads bool `flag:"all-threads"`
	// JSON asks for one JSON object instead of text.
	JSON bool `flag:"json"`
}

// stacksFlags returns the table of elasticrun stacks.
func stacksFlags() []Flag {
	return commandFlags("stacks", append([]Flag{
		{
			Name: "rank", Kind: KindString, Placeholder: "RANKS", Help: "Only workers with these global ranks, such as 0,4-7.",
			parse: as(parseGlobalRanks),
		},
		{Name: "all-threads", Kind: KindBool, Help: "Show all Python threads of each worker, not only the main one."},
		{Name: "json", Kind: KindBool, Help: "Print one JSON object."},
	}, targetFlags()...)...)
}

// LoadStacks resolves the arguments of elasticrun stacks, together with the environment and the config file. Its errors
// are ErrHelp and *UsageError.
func LoadStacks(args []string) (*Stacks, error) {
	r, err := readFlagsOnly("stacks", stacksFlags(), args)
	if err != nil {
		return nil, err
	}
	c := &Stacks{}
	r.decode(c)
	c.Target = r.readTarget(commandSurroundings())
	c.Warnings = r.printableWarnings()
	return c, r.err
}

// stacksCommand describes elasticrun stacks.
func stacksCommand() Subcommand {
	return Subcommand{
		Name: "stacks", Short: "show where each worker's Python code is", Args: "[flags]", flags: stacksFlags,
		Intro: `Show where the Python code of each worker is now: its calls, innermost first. Workers at the same
place are one group, the largest group first. The workers run on and do not notice. With
--rdzv-endpoint it shows the workers of all nodes of a job. Without it, those on this machine of the
only job here that is yours, or of the one with --rdzv-id.
`,
		Outro: `For a worker that is not Python the command shows its nearest Python descendant. If there is none,
or its stack cannot be read, it shows what the kernel says, and why.

Exit code: 0; 2 if there is no such job or rank, or several jobs could be meant; 75 if nothing
replies, or no job runs here.
`,
	}
}
