package config

import (
	"fmt"
	"strings"
)

// Subcommand is a command beside the launch. It is one only as the first argument.
type Subcommand struct {
	// Name is the word behind elasticrun.
	Name string
	// Short says what it does, in a few words.
	Short string
	// Intro says it in whole sentences, Outro what to know besides. They are lines of at most 100 columns.
	Intro, Outro string
	// Args is what follows the name, as in a synopsis.
	Args string
	// Operands are the words that may stand behind the name, for completion.
	Operands []string
	// Flags is its table.
	Flags []Flag
	// Launch says that it takes the launch's command line besides.
	Launch bool
}

// Subcommands returns the table of commands.
func Subcommands() []Subcommand {
	return []Subcommand{
		explainSubcommand(), doctorSubcommand(), statusSubcommand(), logsSubcommand(), storeSubcommand(), simulateSubcommand(), completionSubcommand(),
		{Name: "version", Short: "show the version", Intro: "Show the version.\n"},
	}
}

// Help returns the text of elasticrun NAME --help, at most 100 columns wide.
func (s Subcommand) Help() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nUsage:\n  elasticrun %s\n", s.Intro, strings.TrimSpace(s.Name+" "+s.Args))
	switch {
	case s.Launch:
		b.WriteString("\nFlags, beside those of the launch (elasticrun --help):\n")
	case len(s.Flags) > 0:
		b.WriteString("\nFlags:\n")
	}
	for _, f := range s.Flags {
		b.WriteString(helpEntry(f))
	}
	if s.Outro != "" {
		b.WriteString("\n" + s.Outro)
	}
	return b.String()
}

func explainSubcommand() Subcommand {
	return Subcommand{
		Name: "explain", Short: "say what a launch would do", Args: "[--json] [flags] SCRIPT [ARGS...]", Flags: ExplainFlags(), Launch: true,
		Intro: `Say what a launch would do, and start nothing: each setting and where it came from, who hosts the
rendezvous and what is at the endpoint now, ranks, the workers' commands and environment, and where
their output goes. No file is written, and nothing listens.
`,
		Outro: `It ends with 0, or with 2 and the launch's own line where that would be refused.
elasticrun --dry-run says the same.
`,
	}
}

func doctorSubcommand() Subcommand {
	return Subcommand{
		Name: "doctor", Short: "check this machine", Args: "[--json] [flags] [SCRIPT]", Flags: DoctorFlags(), Launch: true,
		Intro: `Check whether this machine is fit for a launch: interpreter and script, ports, names, the way to the
store, disk, memory, GPUs and limits. Nothing is started but "python -c pass" and nvidia-smi. The
launch's flags tell it what to check.
`,
		Outro: `It ends with 0, also with warnings; with 72 where a check failed; with 2 where the flags are
refused.
`,
	}
}

func storeSubcommand() Subcommand {
	return Subcommand{
		Name: "store", Short: "serve a store of its own", Args: "[flags]", Flags: StoreFlags(),
		Intro: `Serve a store (torch's TCPStore) on its own, for jobs that want it outside of the launcher, and host
the rendezvous of those whose --rdzv-endpoint it is.
`,
		Outro: `When it listens it writes one line to stdout: "store listening on HOST:PORT", and behind it, with
--health, "health on URL". SIGTERM and SIGINT stop it in order, with exit code 0; a second one, a
second or more later, at once. Workers' keys are in memory and end with it.
`,
	}
}

func statusSubcommand() Subcommand {
	return Subcommand{
		Name: "status", Short: "show what a job is doing", Args: "[flags]", Flags: StatusFlags(),
		Intro: `Show what a job is doing: its nodes, their workers, what these use and what they said last. With
--rdzv-endpoint it shows all nodes of a job, with --addr one, by its --status-addr.
`,
		Outro: `Looking changes nothing: it takes no part in the job. It ends with 0, also by SIGINT; with 2 where
what is asked is not there; with 75 where nobody answers.
`,
	}
}

func logsSubcommand() Subcommand {
	return Subcommand{
		Name: "logs", Short: "show the logs of a run", Args: "[flags] [RUN]", Flags: LogsFlags(),
		Intro: `Show what the workers of a run on this machine wrote to their log files: all of them merged, in the
order of time, while the run lasts or afterwards.
`,
		Outro: `RUN is a run id, or the folder of a run. Default: the run that was started last.

It ends with 0, also by SIGINT while it follows; with 2 where there is no such run, or nothing in it
that is asked for.
`,
	}
}

func simulateSubcommand() Subcommand {
	return Subcommand{
		Name: "simulate", Short: "try a large rendezvous on this machine", Args: "[flags]", Flags: SimulateFlags(),
		Intro: `Try a large rendezvous on this machine: the real store and leader in this process, and real agents
in another, each with a connection of its own, whose workers are simulated. It says how long each
step took, and what the store had to do for it.
`,
		Outro: `It ends with 0 if after each step all nodes were in one round, their ranks dense and unique; with 75
if a step took longer than its time; with 70 if something was not as it should be.
`,
	}
}

// Shells returns the shells that there is completion for.
func Shells() []string { return []string{"bash", "zsh", "fish", "powershell"} }

func completionSubcommand() Subcommand {
	return Subcommand{
		Name: "completion", Short: "print what a shell needs to complete elasticrun's command line", Args: strings.Join(Shells(), "|"), Operands: Shells(),
		Intro: `Print what a shell needs to complete elasticrun's command line: flags, their values, commands and
files.
`,
		Outro: `For the shell that runs now:

  bash        source <(elasticrun completion bash)
  zsh         source <(elasticrun completion zsh)
  fish        elasticrun completion fish | source
  powershell  elasticrun completion powershell | Out-String | Invoke-Expression

For every new one, put that line into its startup file. bash must be 4 or later, and zsh needs
compinit before it.
`,
	}
}
