package main

import (
	_ "embed" // bash's completion
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/elasticrun/elasticrun/internal/config"
)

// runCompletion prints a shell's completion script. The script runs this program with completeWord to learn which words
// may follow.
func runCompletion(args []string, stdout io.Writer) error {
	switch {
	case slices.Contains(args, "--help") || slices.Contains(args, "-h"):
		return config.ErrHelp
	case len(args) != 1:
		return &config.UsageError{Where: "elasticrun completion", Problem: "takes one shell: " +
			strings.Join(config.Shells(), ", ")}
	}
	return writeCompletionScript(stdout, args[0])
}

// bashCompletion replaces cobra's script, which works only where the package bash-completion is installed.
//
//go:embed completion.bash
var bashCompletion string

func writeCompletionScript(w io.Writer, shell string) error {
	program := &cobra.Command{Use: "elasticrun"}
	switch shell {
	case "bash":
		_, err := io.WriteString(w, bashCompletion)
		return err
	case "tcsh":
		_, err := io.WriteString(w, tcshCompletion)
		return err
	case "zsh":
		return program.GenZshCompletion(w)
	case "fish":
		return program.GenFishCompletion(w, true)
	case "powershell":
		return program.GenPowerShellCompletionWithDesc(w)
	}
	return &config.UsageError{
		Where:   "elasticrun completion " + shell,
		Problem: "is not a known shell: name one of " + strings.Join(config.Shells(), ", "),
	}
}

// completeWord is the first argument that completion scripts give. The command line up to the cursor follows it.
const completeWord = cobra.ShellCompRequestCmd

// isCompletion reports whether args come from a completion script. The second word asks for words without descriptions.
func isCompletion(args []string) bool {
	return len(args) > 0 && slices.Contains([]string{completeWord, cobra.ShellCompNoDescRequestCmd, completeTcsh}, args[0])
}

// writeCompletions writes the words that may stand at the cursor, one a line, each with a tab and its description, and
// then a directive for the shell. That is the protocol of cobra's completion scripts.
func writeCompletions(w io.Writer, args []string) {
	if args[0] == completeTcsh {
		writeTcshCompletions(w, os.Getenv("COMMAND_LINE"))
		return
	}
	c := config.Complete(args[1:])
	if c.Files && len(c.Words) > 0 { // the shell completes file names only if there are no words
		c.Words = append(c.Words, pythonFiles(".")...)
	}
	for _, word := range c.Words {
		line := word.Word
		if word.Help != "" && args[0] == completeWord {
			line += "\t" + word.Help
		}
		fmt.Fprintln(w, line)
	}
	directive := cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	switch {
	case c.Dirs:
		directive = cobra.ShellCompDirectiveFilterDirs
	case c.Files:
		directive = cobra.ShellCompDirectiveDefault
	}
	fmt.Fprintf(w, ":%d\n", directive)
}

// pythonFiles returns the Python scripts in dir; none if dir cannot be read.
func pythonFiles(dir string) []config.CompletionWord {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var words []config.CompletionWord
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".py" && !strings.ContainsAny(e.Name(), "\t\n") {
			words = append(words, config.CompletionWord{Word: e.Name()})
		}
	}
	return words
}
