package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/procs"
)

// version is set by the linker.
var version = "dev"

// subcommands are the words that name a command; they count as such only as the
// first argument, so that a script may have any name.
func subcommands() []*cobra.Command {
	return []*cobra.Command{
		subcommand("store", "serve a store of its own", config.StoreHelp, store),
		subcommand("simulate", "try a large rendezvous on this machine", config.SimulateHelp, simulation),
		subcommand("logs", "show the logs of a run", config.LogsHelp, logs),
		subcommand("explain", "say what a launch would do", config.ExplainHelp, explainCommand),
		subcommand("doctor", "check this machine", config.DoctorHelp, checkMachine),
		{
			Use:   "version",
			Short: "print the version",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine())
				return err
			},
		},
	}
}

// subcommand is a command whose flags are a table of internal/config, which parses them and writes the help. run returns config.ErrHelp
// where help is all that was asked for, and an exitCode where it has said itself how it ended.
func subcommand(name, short string, help func() string, run func(args []string, stdout io.Writer) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: short, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := run(args, cmd.OutOrStdout())
			if errors.Is(err, config.ErrHelp) {
				return cmd.Help()
			}
			if _, said := errors.AsType[exitCode](err); said {
				return err
			}
			return exitCode(fail(conclude(agent.RunResult{}, err)))
		},
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { fmt.Fprint(cmd.OutOrStdout(), help()) })
	return cmd
}

func versionLine() string {
	return fmt.Sprintf("elasticrun %s %s %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func isSubcommand(args []string) bool {
	return len(args) > 0 && (args[0] == "help" || slices.ContainsFunc(subcommands(), func(c *cobra.Command) bool { return c.Name() == args[0] }))
}

// execute runs what the arguments ask for. Flags of the launch are parsed by
// internal/config, since pflag knows neither torchrun's spellings nor where the
// script's own arguments begin.
func execute(args []string, lifeline *procs.Lifeline) int {
	if !isSubcommand(args) {
		return launch(args, lifeline)
	}
	root := &cobra.Command{
		Use:               "elasticrun [flags] script [args]",
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { fmt.Fprint(cmd.OutOrStdout(), config.Help()) })
	root.AddCommand(subcommands()...)
	root.SetArgs(args)
	root.SetOut(os.Stdout)
	err := root.Execute()
	if code, ok := errors.AsType[exitCode](err); ok {
		return int(code)
	}
	if err != nil {
		return usage(err)
	}
	return 0
}

// exitCode is the error of a subcommand that has said itself how it ended.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// usage answers what config.Load returned instead of a configuration.
func usage(err error) int {
	switch {
	case errors.Is(err, config.ErrHelp):
		fmt.Fprint(os.Stdout, config.Help())
		return 0
	case errors.Is(err, config.ErrVersion):
		fmt.Fprintln(os.Stdout, versionLine())
		return 0
	default:
		return fail(ending{code: exitUsage, reason: config.ReasonUsage, err: err})
	}
}
