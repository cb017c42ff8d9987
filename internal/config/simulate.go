package config

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/rs/zerolog"
)

// Simulate is the resolved configuration of elasticrun simulate.
type Simulate struct {
	// Agents is the number of agents that start the job.
	Agents int `flag:"agents"`
	// MinNodes and MaxNodes are the number of nodes in a round.
	MinNodes, MaxNodes int
	// Rounds is how many times the faults happen.
	Rounds int `flag:"rounds"`
	// FailAfter is the time from the start of a round until a worker fails; nil for never.
	FailAfter *time.Duration `flag:"fail-after"`
	// Kill agents vanish, Leave agents announce that they leave, Cut agents fall silent, and Join agents join late.
	Kill  int `flag:"kill"`
	Leave int `flag:"leave"`
	Cut   int `flag:"cut"`
	Join  int `flag:"join"`
	// Voters is how many agents keep the store together: 1, 3 or 5.
	Voters int `flag:"voters"`
	// KeepAlive is the time between an agent's keep-alives; above 0.
	KeepAlive time.Duration `flag:"keep-alive"`
	// Timeout is how long each step may take; above 0.
	Timeout time.Duration `flag:"timeout"`
	// Seed selects the agents that the faults affect.
	Seed int `flag:"seed"`
	// JSON asks for one object instead of lines.
	JSON bool `flag:"json"`
	// LogFormat is auto, console or json.
	LogFormat string `flag:"log-format"`
	// LogLevel is the lowest level that is logged.
	LogLevel zerolog.Level `flag:"log-level"`
}

// maxAgents is more than the ports of one machine.
const maxAgents = 60_000

// simulateFlags returns the table of elasticrun simulate.
func simulateFlags() []Flag {
	count := func(name, help string) Flag {
		return Flag{Name: name, Kind: KindInt, Default: "0", Placeholder: "K", Help: help, parse: as(between(0, maxAgents))}
	}
	return commandFlags(
		"simulate",
		Flag{
			Name: "agents", Kind: KindInt, Default: "100", Placeholder: "N", parse: as(between(1, maxAgents)),
			Help: "Number of agents that start the job, each with its own connection to the store.",
		},
		Flag{
			Name: "nnodes", Kind: KindSpec, Placeholder: "N|MIN:MAX", parse: as(parseNodes),
			Help: "Number of nodes of the job. Agents beyond MAX are spares. Default: from 1 to the number of agents at " +
				"the end.",
		},
		Flag{
			Name: "fail-after", Kind: KindSeconds, Placeholder: "SECONDS", parse: as(parseSeconds),
			Help: "A worker of one agent fails this long after the start of its round, and all workers are restarted. " +
				"Default: no worker fails.",
		},
		count("kill", "Agents that vanish: their connections are closed without notice."),
		count("leave", "Agents that announce that they leave."),
		count(
			"cut",
			"Agents whose connections stay open but carry no more data. They are lost after three keep-alive intervals.",
		),
		count("join", "Agents that join late."),
		Flag{
			Name: "rounds", Kind: KindInt, Default: "1", Placeholder: "R", parse: as(between(1, math.MaxInt16)),
			Help: "How many times the faults above happen, in this order.",
		},
		Flag{
			Name: "voters", Kind: KindInt, Default: "1", Placeholder: "1|3|5", parse: as(parseVoters),
			Help: "How many agents keep the store together. If it is 3 or 5, the first agent is in the store's process, and " +
				"no fault affects it. If it is 1, the store is a process without an agent.",
		},
		Flag{
			Name:        "keep-alive",
			Kind:        KindSeconds,
			Default:     "5",
			Placeholder: "SECONDS",
			Help:        "Time between an agent's keep-alives.",
			parse:       as(aboveZero),
		},
		Flag{
			Name:        "timeout",
			Kind:        KindSeconds,
			Default:     "60",
			Placeholder: "SECONDS",
			Help:        "How long each step may take.",
			parse:       as(aboveZero),
		},
		Flag{
			Name: "seed", Kind: KindInt, Default: "1", Placeholder: "N", parse: as(between(0, math.MaxInt32)),
			Help: "Selects the affected agents and the number of workers of each, 1 to 8.",
		},
		Flag{Name: "json", Kind: KindBool, Help: "Print one JSON object at the end instead of lines."},
		inherit("log-format"),
		inherit("log-level", func(f *Flag) { f.Default = "error" }), // warnings about lost agents are expected
		inherit("help"),
	)
}

func parseVoters(s string) (int, error) {
	if _, err := oneOf("1", "3", "5")(s); err != nil {
		return 0, err
	}
	return strconv.Atoi(s)
}

// LoadSimulate resolves the arguments of elasticrun simulate, together with the log's environment variables. Its errors
// are ErrHelp and *UsageError.
func LoadSimulate(args []string) (*Simulate, error) {
	r, err := readFlagsOnly("simulate", simulateFlags(), args)
	if err != nil {
		return nil, err
	}
	c := &Simulate{}
	r.decode(c)
	c.MinNodes, c.MaxNodes = 1, c.Agents+c.Rounds*c.Join
	if r.given("nnodes") {
		nodes := value[nodeRange](r, "nnodes")
		c.MinNodes, c.MaxNodes = nodes.low, nodes.high
	}
	if r.err == nil && c.fewest() < c.MinNodes {
		r.fail(
			"agents",
			fmt.Sprintf("too few: at some time %d would be left, and the job needs %d", max(0, c.fewest()), c.MinNodes),
		)
	}
	return c, r.err
}

// fewest is the smallest number of agents at any time.
func (c *Simulate) fewest() int {
	gone := c.Kill + c.Leave + c.Cut
	return min(c.Agents-gone, c.Agents-gone*c.Rounds+c.Join*(c.Rounds-1))
}

// simulateCommand describes elasticrun simulate.
func simulateCommand() Subcommand {
	return Subcommand{
		Name: "simulate", Short: "simulate a large rendezvous on this machine", Args: "[flags]", flags: simulateFlags,
		Intro: `Simulate a large rendezvous on this machine: the real store and leader in this process, and real
agents in another, each with its own connection. Only the workers are simulated. The command prints
how long each step took and how many messages the store handled.
`,
		Outro: `Exit code: 0 if after each step all nodes were in one round with dense and unique ranks; 75 if a
step took longer than its timeout; 70 if a check failed.
`,
	}
}
