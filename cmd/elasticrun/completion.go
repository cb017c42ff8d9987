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

// completion prints a shell's completion script. The script asks this program, by completeWord, what may stand
// at the cursor.
func completion(args []string, stdout io.Writer) error {
	switch {
	case slices.Contains(args, "--help") || slices.Contains(args, "-h"):
		return config.ErrHelp
	case len(args) != 1:
		return &config.UsageError{Where: "elasticrun completion", Problem: "takes one shell: " + strings.Join(config.Shells(), ", ")}
	}
	return completionScript(stdout, args[0])
}

// bashCompletion is used in place of cobra's script, which needs the package bash-completion besides.
//
//go:embed completion.bash
var bashCompletion string

func completionScript(w io.Writer, shell string) error {
	program := &cobra.Command{Use: "elasticrun"}
	switch shell {
	case "bash":
		_, err := io.WriteString(w, bashCompletion)
		return err
	case "zsh":
		return program.GenZshCompletion(w)
	case "fish":
		return program.GenFishCompletion(w, true)
	case "powershell":
		return program.GenPowerShellCompletionWithDesc(w)
	}
	return &config.UsageError{Where: "elasticrun completion " + shell, Problem: "knows no such shell: give one of " + strings.Join(config.Shells(), ", ")}
}

// completeWord is the first argument by which those scripts ask. What follows is the command line up to the cursor.
const completeWord = cobra.ShellCompRequestCmd

// isCompletion tells whether a completion script asks; there is a form without descriptions.
func isCompletion(args []string) bool {
	return len(args) > 0 && (args[0] == completeWord || args[0] == cobra.ShellCompNoDescRequestCmd)
}

// answerCompletion writes what may stand at the cursor, one a line with its description behind a tab, and how the shell is to
// go on. That is the protocol of the scripts that cobra makes.
func answerCompletion(w io.Writer, args []string) {
	c := config.Complete(args[1:])
	if c.Files && len(c.Words) > 0 { // the shell asks for files only where there are no words
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

// pythonFiles returns the scripts in a folder. One that cannot be read has none.
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
