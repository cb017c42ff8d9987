package config

import (
	"errors"
	"math"
	"regexp"
	"slices"

	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Logs is everything that elasticrun logs was told, checked and resolved.
type Logs struct {
	// Run is a run id, the folder of a run, or a folder of runs; empty for the latest.
	Run string
	// LogDir is the folder that runs are in; empty for the temporary ones.
	LogDir string
	// Follow shows what is written until the run has ended.
	Follow bool
	// Ranks are global ranks, LocalRanks local ones; nil is all.
	Ranks, LocalRanks workerlog.RankSet
	// Std is a stream; StdNone is both.
	Std workerlog.Std
	// Pattern is what lines must match; nil takes all.
	Pattern *regexp.Regexp
	// Attempt is the name of an attempt, 0 or 0.r1; empty is all.
	Attempt string
	// Tail is how many lines are shown of those that are there; 0 is all.
	Tail int
	// Prefix is the template of what lines start with; nil is the default.
	Prefix *string
}

// LogsFlags returns the table of elasticrun logs.
func LogsFlags() []Flag {
	flags := []Flag{
		{Name: "follow", Short: "f", Kind: KindBool, Help: "Go on with what is written, until the run has ended."},
		{Name: "rank", Kind: KindSpec, Placeholder: "RANKS", Help: "Only workers with these global ranks, such as 0,4-7."},
		{Name: "local-rank", Kind: KindSpec, Placeholder: "RANKS", Help: "Only workers with these local ranks."},
		{Name: "stream", Kind: KindString, Placeholder: "NAME", Values: []string{"stdout", "stderr"}, Help: "Only stdout, or only stderr."},
		{Name: "grep", Kind: KindString, Placeholder: "PATTERN", Help: "Only lines that match a regular expression (Go's syntax)."},
		{Name: "attempt", Kind: KindSpec, Default: "all", Placeholder: "N|all", Help: "Only attempt_N, with what membership changes made of it; N.rROUND is one of these alone."},
		{Name: "tail", Kind: KindInt, Default: "0", Placeholder: "N", Help: "Of what is there already only the last N lines. 0 is all."},
		{
			Name: "prefix", Kind: KindString, Placeholder: "TEMPLATE",
			Help: "What lines start with, as for --log-line-prefix; ${time} is when a line was written, ${stream} its stream. Default: ${time} [${rank}] and a blank.",
		},
		{Name: "no-prefix", Kind: KindBool, Help: "Show lines as they are."},
	}
	for _, name := range []string{"log-dir", "config", "help"} {
		f, _ := findFlag(Flags(), name)
		if name == "log-dir" {
			f.Help, f.Effect = "Folder in which runs are looked for. Default: the temporary folders of your jobs without --log-dir.", Reads
		}
		flags = append(flags, f)
	}
	for i := range flags {
		flags[i].Group, flags[i].CommandLineOnly = groupLogs, true
	}
	return flags
}

// LoadLogs resolves the arguments of elasticrun logs, together with PET_LOG_DIR and the config file's log-dir.
// Its errors are ErrHelp and *UsageError.
func LoadLogs(args []string) (*Logs, error) {
	p := argParser{flags: LogsFlags(), hint: "elasticrun logs --help lists them"}
	run := ""
	line, err := p.split(args)
	if err == nil && len(line.command) > 0 { // flags may stand behind the run, too
		run = line.command[0]
		line, err = p.split(line.command[1:])
	}
	switch {
	case err != nil:
		return nil, err
	case len(line.command) > 0:
		return nil, &UsageError{Where: shown(line.command[0]), Problem: "elasticrun logs shows one run at a time; to start a script of that name write ./logs"}
	}
	settings, _, err := gather(p.flags, line.options)
	if err != nil {
		return nil, err
	}
	return resolveLogs(run, settings)
}

func resolveLogs(run string, settings []Setting) (*Logs, error) {
	r := &reader{settings: make(map[string]Setting, len(settings))}
	for _, s := range settings {
		r.settings[s.Name] = s
	}
	c := &Logs{
		Run:        run,
		LogDir:     r.text("log-dir"),
		Follow:     r.flag("follow"),
		Ranks:      read(r, "rank", parseGlobalRanks),
		LocalRanks: read(r, "local-rank", parseLocalRanks),
		Tail:       read(r, "tail", between(0, math.MaxInt32)),
	}
	if r.given("stream") {
		name := read(r, "stream", oneOf("stdout", "stderr"))
		c.Std = map[string]workerlog.Std{"stdout": workerlog.Stdout, "stderr": workerlog.Stderr}[name]
	}
	if r.given("grep") {
		c.Pattern = read(r, "grep", regexp.Compile)
	}
	if r.text("attempt") != "all" {
		c.Attempt = read(r, "attempt", parseAttempt)
	}
	none := ""
	switch {
	case r.flag("no-prefix") && r.given("prefix"):
		r.fail("no-prefix", "cannot be combined with --prefix")
	case r.flag("no-prefix"):
		c.Prefix = &none
	case r.given("prefix"):
		prefix := r.text("prefix")
		c.Prefix = &prefix
	}
	if r.err != nil {
		return nil, r.err
	}
	return c, nil
}

// parseGlobalRanks reads ranks that are global with and without a g.
func parseGlobalRanks(s string) (workerlog.RankSet, error) {
	set, err := workerlog.ParseRanks(s)
	for i := range set {
		set[i].Global = true
	}
	return set, err
}

func parseLocalRanks(s string) (workerlog.RankSet, error) {
	set, err := workerlog.ParseRanks(s)
	if slices.ContainsFunc(set, func(r workerlog.RankRange) bool { return r.Global }) {
		return nil, errors.New("names local ranks: use --rank for global ones")
	}
	return set, err
}

var attemptName = lazily(`^\d+(\.r\d+)?(\.\d+)?$`)

func parseAttempt(s string) (string, error) {
	if !attemptName().MatchString(s) {
		return "", errors.New("must be all, a number of restarts such as 0, or the name of one attempt such as 0.r1")
	}
	return s, nil
}
