package config

import (
	"strings"

	"github.com/elasticrun/elasticrun/internal/nearest"
)

// Subcommand is a command besides the launch. Its name is a command only as the first argument.
type Subcommand struct {
	// Name is the first argument of the command line.
	Name string
	// Short describes the command in a few words.
	Short string
	// Intro describes the command in whole sentences; Outro adds details. Their lines have at most 100 columns.
	Intro, Outro string
	// Args is what follows the name in a synopsis.
	Args string
	// Operands are words that may follow the name, for completion.
	Operands []string
	// Launch says that the command also takes a launch's command line.
	Launch bool
	flags  func() []Flag // nil if there are none
}

// Flags returns the command's own flag table.
func (s Subcommand) Flags() []Flag {
	if s.flags == nil {
		return nil
	}
	return s.flags()
}

// Subcommands returns the table of commands. It makes no flag table, because each launch looks for its command here.
func Subcommands() []Subcommand {
	return []Subcommand{
		{
			Name: "explain", Short: "print what a launch would do, and start nothing", Args: "[--json] [flags] SCRIPT [ARGS...]",
			Launch: true, flags: func() []Flag { return withJSON("explain") },
			Intro: `Print what a launch would do, and start nothing: each setting and its source, who hosts the
rendezvous and what is at the endpoint now, ranks, the workers' commands and environment, and where
their output goes. It writes no file and listens on no port.
`,
			Outro: `Exit code: 0; 2 if the launch would be refused, with the launch's own error line.
elasticrun --dry-run prints the same.
`,
		},
		{
			Name: "doctor", Short: "check this machine", Args: "[--json] [flags] [SCRIPT]",
			Launch: true, flags: func() []Flag { return withJSON("doctor") },
			Intro: `Check whether this machine is ready for a launch: interpreter, torch and script, ports, names, the
route to the store, disk, memory, GPUs and limits. It starts nothing but the interpreter, which
imports torch, and nvidia-smi. The launch's flags say what to check.
`,
			Outro: `Exit code: 0, also with warnings; 72 if a check failed; 2 if the flags are refused.
`,
		},
		statusCommand(), stacksCommand(), psCommand(), stopCommand(), logsCommand(),
		storeCommand(), secretCommand(), simulateCommand(),
		{
			Name: "completion", Short: "print a shell completion script", Args: strings.Join(Shells(), "|"), Operands: Shells(),
			Intro: `Print a script that makes a shell complete elasticrun's command line: flags, their values, commands
and files.
`,
			Outro: completionOutro,
		},
		{Name: "version", Short: "show the version", Intro: "Show the version.\n"},
	}
}

// NearestCommand returns a hint about a misspelled command: "did you mean elasticrun status?", or where the commands
// are listed.
func NearestCommand(name string) string {
	var names []string
	for _, s := range Subcommands() {
		names = append(names, s.Name)
	}
	if near := nearest.Of(name, names); near != "" {
		return "did you mean elasticrun " + near + "?"
	}
	return "elasticrun --help lists them"
}

// completionOutro says how a shell loads its script.
const completionOutro = `For the current shell:

  bash        source <(elasticrun completion bash)
  zsh         source <(elasticrun completion zsh)
  tcsh        elasticrun completion tcsh > ~/.elasticrun.tcsh; source ~/.elasticrun.tcsh
  fish        elasticrun completion fish | source
  powershell  elasticrun completion powershell | Out-String | Invoke-Expression

For every new shell, put that line into its startup file. bash must be 4 or later, and zsh needs
compinit before it.
`

// Shells returns the shells that have a completion script.
func Shells() []string { return []string{"bash", "zsh", "tcsh", "fish", "powershell"} }

// jsonFlag is the flag that explain and doctor have besides a launch's.
var jsonFlag = Flag{Name: "json", Kind: KindBool, Help: "Print JSON.", Env: []string{}, CommandLineOnly: true}

func withJSON(command string) []Flag { return commandFlags(command, jsonFlag, inherit("help")) }

// commandFlags returns the table of a command. Its flags cannot be in a config file, except as flags of the launch.
func commandFlags(command string, flags ...Flag) []Flag {
	for i := range flags {
		flags[i].Group, flags[i].CommandLineOnly = "elasticrun "+command, true
	}
	return flags
}

// inherit returns a flag of the launch, with changes.
func inherit(name string, changes ...func(*Flag)) Flag {
	f, _ := findFlag(Flags(), name)
	for _, change := range changes {
		change(&f)
	}
	return f
}

// withHelp replaces a flag's help.
func withHelp(text string) func(*Flag) { return func(f *Flag) { f.Help = text } }
