package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/config/help"
	"github.com/elasticrun/elasticrun/internal/exitcode"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/procs/guard"
)

// version is set by the linker.
var version = "dev"

// runs returns the functions that run the commands of [config.Subcommands], by their names.
func runs() map[string]func(args []string, stdout io.Writer) error {
	return map[string]func(args []string, stdout io.Writer) error{
		"store": runStore, "simulate": runSimulate, "logs": runLogs, "explain": runExplain, "doctor": runDoctor,
		"completion": runCompletion, "status": runStatus, "ps": runPS, "stop": runStop,
		"secret": runSecret, "stacks": runStacks,
		"version": func(args []string, stdout io.Writer) error {
			if len(args) > 0 {
				return &config.UsageError{Where: "elasticrun version", Problem: "takes no arguments"}
			}
			_, err := fmt.Fprintln(stdout, versionLine())
			return err
		},
	}
}

// subcommands returns the commands. Their names count only as the first argument, so that a script may have any name.
func subcommands() []*cobra.Command {
	run := runs()
	var commands []*cobra.Command
	for _, s := range config.Subcommands() {
		commands = append(commands, subcommand(s, run[s.Name]))
	}
	return commands
}

// subcommand makes the cobra command of s; package config parses its flags. run returns config.ErrHelp if the
// user asked for help, and an exitCode if it has already reported how it ended.
func subcommand(s config.Subcommand, run func(args []string, stdout io.Writer) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: s.Name, Short: s.Short, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := run(args, cmd.OutOrStdout())
			if errors.Is(err, config.ErrHelp) {
				return cmd.Help()
			}
			if _, reported := errors.AsType[exitCode](err); reported {
				return err
			}
			if isReaderGone(err) {
				return nil
			}
			return exitCode(fail(conclude(agent.RunResult{}, err)))
		},
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { fmt.Fprint(cmd.OutOrStdout(), help.Command(s)) })
	return cmd
}

// isReaderGone reports whether nobody reads stdout any more, as after elasticrun ps | head: that is no failure.
func isReaderGone(err error) bool {
	e, ok := errors.AsType[*fs.PathError](err)
	return ok && e.Path == os.Stdout.Name() && errors.Is(e, syscall.EPIPE)
}

func versionLine() string {
	return fmt.Sprintf("elasticrun %s %s %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func isSubcommand(args []string) bool {
	if len(args) == 0 {
		return false
	}
	named := func(s config.Subcommand) bool { return s.Name == args[0] }
	return isCompletion(args) || args[0] == "help" || slices.ContainsFunc(config.Subcommands(), named)
}

// execute runs the subcommand or the launch that args ask for. internal/config parses the flags of a launch: pflag
// knows neither torchrun's spellings nor where the script's own arguments begin.
func execute(args []string, lifeline *guard.Lifeline) int {
	if !isSubcommand(args) {
		return runLaunch(args, lifeline)
	}
	if isCompletion(args) {
		writeCompletions(os.Stdout, args)
		return 0
	}
	if args[0] == "help" && len(args) > 1 && !isSubcommand(args[1:]) {
		return failUsage(&config.UsageError{
			Where:   fmt.Sprintf("%q", args[1]),
			Problem: "elasticrun has no command of this name; " + config.NearestCommand(args[1]),
		})
	}
	root := &cobra.Command{
		Use:               "elasticrun [flags] script [args]",
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { fmt.Fprint(cmd.OutOrStdout(), help.Launch()) })
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

// exitCode is the error of a subcommand that has already reported how it ended.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// failUsage handles an error of config.Load: it prints what was requested (help, version, a completion script) or the
// error, and returns the exit code.
func failUsage(err error) int {
	completion, requested := errors.AsType[*config.CompletionRequest](err)
	switch {
	case requested:
		if err := writeCompletionScript(os.Stdout, completion.Shell); err != nil {
			return fail(ending{code: exitOutput, reason: exitcode.ReasonOutput, err: err})
		}
		return 0
	case errors.Is(err, config.ErrHelp):
		text := help.Launch()
		if calledAsTorchrun(os.Args) {
			text = help.Torchrun()
		}
		fmt.Fprint(os.Stdout, text)
		return 0
	case errors.Is(err, config.ErrVersion):
		fmt.Fprintln(os.Stdout, versionLine())
		return 0
	default:
		return fail(ending{code: exitUsage, reason: exitcode.ReasonUsage, err: err})
	}
}
