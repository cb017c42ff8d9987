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
	"github.com/elasticrun/elasticrun/pkg/procs/guard"
)

// version is set by the linker.
var version = "dev"

// subcommands are the words that name a command; they count as such only as the
// first argument, so that a script may have any name.
func subcommands() []*cobra.Command {
	runs := map[string]func(args []string, stdout io.Writer) error{
		"store": store, "simulate": simulation, "logs": logs, "explain": explainCommand, "doctor": checkMachine, "completion": completion,
		"status": showStatus,
		"version": func(args []string, stdout io.Writer) error {
			if len(args) > 0 {
				return &config.UsageError{Where: "elasticrun version", Problem: "takes no arguments"}
			}
			_, err := fmt.Fprintln(stdout, versionLine())
			return err
		},
	}
	var commands []*cobra.Command
	for _, s := range config.Subcommands() {
		commands = append(commands, subcommand(s, runs[s.Name]))
	}
	return commands
}

// subcommand is a command of that table, which config parses and describes. run returns config.ErrHelp where help is all that was asked for, and an
// exitCode where it has said itself how it ended.
func subcommand(s config.Subcommand, run func(args []string, stdout io.Writer) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: s.Name, Short: s.Short, DisableFlagParsing: true,
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
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { fmt.Fprint(cmd.OutOrStdout(), s.Help()) })
	return cmd
}

func versionLine() string {
	return fmt.Sprintf("elasticrun %s %s %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func isSubcommand(args []string) bool {
	return isCompletion(args) || len(args) > 0 && (args[0] == "help" || slices.ContainsFunc(subcommands(), func(c *cobra.Command) bool { return c.Name() == args[0] }))
}

// execute runs what the arguments ask for. Flags of the launch are parsed by
// internal/config, since pflag knows neither torchrun's spellings nor where the
// script's own arguments begin.
func execute(args []string, lifeline *guard.Lifeline) int {
	if !isSubcommand(args) {
		return runLaunch(args, lifeline)
	}
	if isCompletion(args) {
		answerCompletion(os.Stdout, args)
		return 0
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
		return failUsage(err)
	}
	return 0
}

// exitCode is the error of a subcommand that has said itself how it ended.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// failUsage answers what config.Load returned instead of a configuration.
func failUsage(err error) int {
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
