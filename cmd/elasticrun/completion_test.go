package main

import (
	"maps"
	"os/exec"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// The program has a function for each command of the table, and no other.
func TestSubcommandsRun(t *testing.T) {
	var described []string
	for _, s := range config.Subcommands() {
		described = append(described, s.Name)
	}
	slices.Sort(described)
	if diff := cmp.Diff(described, slices.Sorted(maps.Keys(runs()))); diff != "" {
		t.Errorf("the commands that run are not those of config.Subcommands (-table +program):\n%s", diff)
	}
}

// completion.txtar skips shells that are not installed. This test says which.
func TestShells(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "tcsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				testenv.Missing(t, "needs %s for all of testdata/script/completion.txtar: %v", shell, err)
			}
		})
	}
}
