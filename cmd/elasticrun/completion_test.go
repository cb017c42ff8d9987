package main

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// Completion and manual pages know the commands that there are.
func TestSubcommandsAreDescribed(t *testing.T) {
	var described, there []string
	for _, s := range config.Subcommands() {
		described = append(described, s.Name)
	}
	for _, c := range subcommands() {
		there = append(there, c.Name())
	}
	slices.Sort(described)
	slices.Sort(there)
	if diff := cmp.Diff(there, described); diff != "" {
		t.Errorf("config.Subcommands is not what the program knows (-program +described):\n%s", diff)
	}
}

// completion.txtar leaves out the shells that are not here; this says so.
func TestShells(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "tcsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				testenv.Missing(t, "needs %s for all of testdata/script/completion.txtar: %v", shell, err)
			}
		})
	}
}
