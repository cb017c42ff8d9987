package config

import (
	"fmt"
	"math"
	"time"

	"github.com/rs/zerolog"
)

// Simulate is everything that elasticrun simulate was told, checked and resolved.
type Simulate struct {
	// Agents begin the job.
	Agents int
	// MinNodes and MaxNodes are the number of nodes in a round.
	MinNodes, MaxNodes int
	// Rounds is how many times the faults happen.
	Rounds int
	// FailAfter is when a worker fails in its round; nil for never.
	FailAfter *time.Duration
	// Kill, Leave, Cut and Join are how many agents vanish, say that they leave, fall silent, and come late.
	Kill, Leave, Cut, Join int
	// KeepAlive is the time between two proofs of an agent's life; above 0.
	KeepAlive time.Duration
	// Timeout is how long each step may take; above 0.
	Timeout time.Duration
	// Seed chooses who is hit.
	Seed int
	// JSON asks for one object instead of lines.
	JSON bool
	// LogFormat is auto, console or json.
	LogFormat string
	// LogLevel is the lowest level that is logged.
	LogLevel zerolog.Level
}

// SimulateFlags returns the table of elasticrun simulate.
func SimulateFlags() []Flag {
	count := func(name, help string) Flag {
		return Flag{Name: name, Kind: KindInt, Default: "0", Placeholder: "K", Help: help}
	}
	flags := []Flag{
		{Name: "agents", Kind: KindInt, Default: "100", Placeholder: "N", Help: "Agents that begin the job, each with a connection of its own to the store."},
		{
			Name: "nnodes", Kind: KindSpec, Placeholder: "N|MIN:MAX",
			Help: "Number of nodes of the job. Agents beyond MAX are spares. Default: 1 to as many as there are agents in the end.",
		},
		{
			Name: "fail-after", Kind: KindSeconds, Placeholder: "SECONDS",
			Help: "A worker of one agent fails, that long after its round has begun, and all workers are restarted. Default: none does.",
		},
		count("kill", "Agents that vanish: their connections are closed without a word."),
		count("leave", "Agents that leave, and say so before."),
		count("cut", "Agents whose connections stay open, but carry nothing any more. They are lost after three keep-alive times."),
		count("join", "Agents that come late."),
		{Name: "rounds", Kind: KindInt, Default: "1", Placeholder: "R", Help: "How many times all that happens, in this order."},
		{Name: "keep-alive", Kind: KindSeconds, Default: "5", Placeholder: "SECONDS", Help: "Time between two proofs of an agent's life."},
		{Name: "timeout", Kind: KindSeconds, Default: "60", Placeholder: "SECONDS", Help: "How long each step may take."},
		{Name: "seed", Kind: KindInt, Default: "1", Placeholder: "N", Help: "Chooses which agents are hit, and how many workers each has: 1 to 8."},
		{Name: "json", Kind: KindBool, Help: "Print one JSON object at the end instead of lines."},
	}
	for _, name := range []string{"log-format", "log-level", "help"} {
		f, _ := findFlag(Flags(), name)
		if name == "log-level" {
			f.Default = "error" // agents that are lost are what it is about
		}
		flags = append(flags, f)
	}
	for i := range flags {
		flags[i].Group, flags[i].CommandLineOnly = groupSimulate, true
	}
	return flags
}

// LoadSimulate resolves the arguments of elasticrun simulate, together with the log's
// environment variables. Its errors are ErrHelp and *UsageError.
func LoadSimulate(args []string) (*Simulate, error) {
	p := argParser{flags: SimulateFlags(), hint: "elasticrun simulate --help lists them"}
	line, err := p.split(args)
	if err != nil {
		return nil, err
	}
	if len(line.command) > 0 {
		return nil, &UsageError{Where: shown(line.command[0]), Problem: "elasticrun simulate takes flags only; to run a script of that name write ./simulate"}
	}
	l, err := newLayers(p.flags, line.options)
	if err != nil {
		return nil, err
	}
	return resolveSimulate(l.settings())
}

// maxAgents is beyond what one machine has ports for.
const maxAgents = 60_000

func resolveSimulate(settings []Setting) (*Simulate, error) {
	r := &reader{settings: make(map[string]Setting, len(settings))}
	for _, s := range settings {
		r.settings[s.Name] = s
	}
	upTo := between(0, maxAgents)
	c := &Simulate{
		Agents: read(r, "agents", between(1, maxAgents)),
		Kill:   read(r, "kill", upTo), Leave: read(r, "leave", upTo), Cut: read(r, "cut", upTo), Join: read(r, "join", upTo),
		Rounds:    read(r, "rounds", between(1, math.MaxInt16)),
		KeepAlive: read(r, "keep-alive", aboveZero),
		Timeout:   read(r, "timeout", aboveZero),
		Seed:      read(r, "seed", between(0, math.MaxInt32)),
		JSON:      r.flag("json"),
		LogFormat: read(r, "log-format", logFormat()),
		LogLevel:  read(r, "log-level", parseLevel),
	}
	c.MinNodes, c.MaxNodes = 1, c.Agents+c.Rounds*c.Join
	if r.given("nnodes") {
		nodes := read(r, "nnodes", parseNodes)
		c.MinNodes, c.MaxNodes = nodes[0], nodes[1]
	}
	if r.given("fail-after") {
		after := read(r, "fail-after", seconds)
		c.FailAfter = &after
	}
	if r.err == nil && c.fewest() < c.MinNodes {
		r.fail("agents", fmt.Sprintf("too few: at some time %d would be left, and the job needs %d", max(0, c.fewest()), c.MinNodes))
	}
	if r.err != nil {
		return nil, r.err
	}
	return c, nil
}

// fewest is how many agents there are when there are fewest.
func (c *Simulate) fewest() int {
	gone := c.Kill + c.Leave + c.Cut
	return min(c.Agents-gone, c.Agents-gone*c.Rounds+c.Join*(c.Rounds-1))
}
