package config

import (
	"errors"
	"math"
	"regexp"
	"slices"

	"github.com/elasticrun/elasticrun/internal/lazyregexp"
	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Logs is the resolved configuration of elasticrun logs.
type Logs struct {
	// Run is a run id, the folder of a run, or a folder of runs; empty for the latest.
	Run string
	// LogDir is the folder that contains the runs; empty for the temporary ones.
	LogDir string `flag:"log-dir"`
	// OnlyThere says that the command line names LogDir, so that the run is in no other folder.
	OnlyThere bool
	// List asks for the list of runs instead of logs.
	List bool `flag:"list"`
	// Follow shows new lines until the run has ended.
	Follow bool `flag:"follow"`
	// Ranks are global ranks, LocalRanks local ones; nil is all.
	Ranks      workerlog.RankSet `flag:"rank"`
	LocalRanks workerlog.RankSet `flag:"local-rank"`
	// Stream is a stream; NoStreams is both.
	Stream workerlog.StreamSet `flag:"stream,given"`
	// Pattern selects the lines that match; nil selects all.
	Pattern *regexp.Regexp
	// Attempt is the name of an attempt, 0 or 0.r1; empty is all.
	Attempt string `flag:"attempt"`
	// Tail is the number of existing lines that are shown; 0 is all.
	Tail int `flag:"tail"`
	// Prefix is the template of the lines' prefix; nil is the default.
	Prefix *string `flag:"prefix"`
}

// logsFlags returns the table of elasticrun logs.
func logsFlags() []Flag {
	return commandFlags(
		"logs",
		Flag{
			Name: "list", Kind: KindBool,
			Help: "List your runs with log files, the newest first: run id, start, result, folder.",
		},
		Flag{Name: "follow", Short: "f", Kind: KindBool, Help: "Show new lines until the run has ended."},
		Flag{
			Name:        "rank",
			Kind:        KindSpec,
			Placeholder: "RANKS",
			Help:        "Only workers with these global ranks, such as 0,4-7.",
			parse:       as(parseGlobalRanks),
		},
		Flag{
			Name:        "local-rank",
			Kind:        KindSpec,
			Placeholder: "RANKS",
			Help:        "Only workers with these local ranks.",
			parse:       as(parseLocalRanks),
		},
		Flag{
			Name:        "stream",
			Kind:        KindString,
			Placeholder: "NAME",
			Values:      []string{"stdout", "stderr"},
			Help:        "Only stdout, or only stderr.",
			parse:       as(parseStream),
		},
		Flag{
			Name:        "grep",
			Kind:        KindString,
			Placeholder: "PATTERN",
			Help:        "Only lines that match a regular expression (Go syntax).",
		},
		Flag{
			Name: "attempt", Kind: KindSpec, Default: "all", Placeholder: "N|all", parse: as(parseAttempt),
			Help: "Only attempt N, with all its membership changes; N.rROUND selects one of them.",
		},
		Flag{
			Name:        "tail",
			Kind:        KindInt,
			Default:     "0",
			Placeholder: "N",
			Help:        "Only the last N of the existing lines. 0 shows all.",
			parse:       as(between(0, math.MaxInt32)),
		},
		Flag{
			Name: "prefix", Kind: KindString, Placeholder: "TEMPLATE",
			Help: "Prefix of the lines, as for --log-line-prefix-template. ${time} is when a line was written, and ${stream} " +
				"its stream. Default: ${time} [${rank}] and a blank.",
		},
		Flag{Name: "no-prefix", Kind: KindBool, Help: "Show lines without a prefix."},
		inherit(
			"log-dir",
			withHelp("Folder that contains the runs. Default: your last 20 runs on this machine that wrote log files, and the "+
				"temporary folders of your jobs."),
			func(f *Flag) { f.Effect = Reads },
		),
		inherit("config"),
		inherit("help"),
	)
}

// LoadLogs resolves the arguments of elasticrun logs, together with PET_LOG_DIR and the config file's log-dir. Its
// errors are ErrHelp and *UsageError.
func LoadLogs(args []string) (*Logs, error) {
	p := argParser{flags: logsFlags(), hint: "elasticrun logs --help lists them"}
	c := &Logs{}
	line, err := p.split(args)
	if err == nil && len(line.command) > 0 { // flags may follow the run, too
		c.Run = line.command[0]
		line, err = p.split(line.command[1:])
	}
	switch {
	case err != nil:
		return nil, err
	case len(line.command) > 0:
		return nil, &UsageError{
			Where:   printable.Quote(line.command[0]),
			Problem: "elasticrun logs shows one run at a time; to run a script of that name write ./logs",
		}
	}
	settings, _, err := gather(p.flags, line.options)
	if err != nil {
		return nil, err
	}
	r := newReader(p.flags, settings)
	r.decode(c)
	if r.given("grep") {
		c.Pattern = read(r, "grep", regexp.Compile)
	}
	if r.isOn("no-prefix") {
		if c.Prefix != nil {
			r.fail("no-prefix", "cannot be combined with --prefix")
		}
		c.Prefix = new(string)
	}
	c.OnlyThere = r.settings["log-dir"].Source.Kind == FromFlag
	if c.List {
		c.checkList(r)
	}
	return c, r.err
}

// checkList refuses what selects lines of a run beside --list.
func (c *Logs) checkList(r *reader) {
	if c.Run != "" {
		r.fail("list", "cannot be combined with a run, here "+printable.Quote(c.Run)+
			"; --log-dir=DIR --list lists the runs in a folder")
	}
	for _, f := range logsFlags() {
		switch f.Name {
		case "list", "log-dir", "config":
		default:
			if r.settings[f.Name].Source.Kind == FromFlag {
				r.fail(f.Name, "cannot be combined with --list")
			}
		}
	}
}

func parseLocalRanks(s string) (workerlog.RankSet, error) {
	set, err := workerlog.ParseRanks(s)
	if slices.ContainsFunc(set, func(r workerlog.RankRange) bool { return r.Global }) {
		return nil, errors.New("names local ranks: use --rank for global ones")
	}
	return set, err
}

// parseStream reads the name of one output stream.
func parseStream(s string) (workerlog.StreamSet, error) {
	name, err := oneOf("stdout", "stderr")(s)
	return map[string]workerlog.StreamSet{"stdout": workerlog.Stdout, "stderr": workerlog.Stderr}[name], err
}

var attemptName = lazyregexp.New(`^\d+(\.r\d+)?(\.\d+)?$`)

// parseAttempt reads the name of an attempt; all attempts are "".
func parseAttempt(s string) (string, error) {
	switch {
	case s == "all":
		return "", nil
	case !attemptName().MatchString(s):
		return "", errors.New("must be all, a number of restarts such as 0, or the name of one attempt such as 0.r1")
	}
	return s, nil
}

// logsCommand describes elasticrun logs.
func logsCommand() Subcommand {
	return Subcommand{
		Name: "logs", Short: "show the logs of a run", Args: "[flags] [RUN]", flags: logsFlags,
		Intro: `Show the log files of a run's workers on this machine, merged in the order of time, during the run
or after it. A line "--- attempt 1, ... ---" says where the workers were restarted, and why.
`,
		Outro: `RUN is a run id, the start of one, or the folder of a run. Default: the run that was started last;
a line on stderr says which.

Exit code: 0, also after SIGINT with --follow; 2 if there is no such run or nothing in it matches.
`,
	}
}
