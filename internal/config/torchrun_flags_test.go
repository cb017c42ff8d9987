package config

import (
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// torchrunParser is a Python program that prints the options of torchrun and torch.distributed.launch as JSON, one a
// line. It reads them from the parser that prints their --help, because only the parser knows the variables.
const torchrunParser = `
import argparse, json, torch.distributed.launch as launch
from torch.distributed.argparse_util import check_env, env
found = []
argparse.ArgumentParser.parse_args = lambda parser, args: found.append(parser)
launch.parse_args([])
for a in found[0]._actions:
    if a.option_strings:
        variable = "PET_" + a.dest.upper() if isinstance(a, (env, check_env)) else ""
        default = None if a.default in (None, argparse.SUPPRESS, []) else str(a.default)
        print(json.dumps({"names": a.option_strings, "value": a.nargs != 0, "choices": a.choices,
                          "variable": variable, "default": default}))
`

// torchrunOption is an option of torchrun.
type torchrunOption struct {
	Names    []string // all spellings and short forms
	Value    bool     // whether a value follows
	Choices  []string // nil if any value will do
	Variable string
	Default  *string
}

func torchrunOptions(t *testing.T, python string) []torchrunOption {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", torchrunParser)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list torchrun's options: %v\n%s", err, &stderr)
	}
	var options []torchrunOption
	for line := range strings.Lines(string(out)) {
		var o torchrunOption
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		options = append(options, o)
	}
	return options
}

// TestFlagsOfTorchrun checks that the table has every option of the newest torchrun and of torch.distributed.launch:
// spellings, short forms, choices, defaults and variables. No other flag may count as torchrun's.
func TestFlagsOfTorchrun(t *testing.T) {
	for _, version := range []string{"2.14", testenv.Official} {
		t.Run(version, func(t *testing.T) {
			if version == testenv.Official && !testenv.Whole(t) {
				t.Skip("the official build is compared in make soak")
			}
			compareFlags(t, torchrunOptions(t, testenv.Torch(t, version)))
		})
	}
}

func compareFlags(t *testing.T, options []torchrunOption) {
	t.Helper()
	if len(options) < 30 {
		t.Fatalf("the parser lists only %d options", len(options))
	}
	theirs := map[string]bool{}
	for _, o := range options {
		f, ok := findFlag(Flags(), strings.TrimLeft(o.Names[len(o.Names)-1], "-"))
		if !ok {
			t.Errorf("the table lacks %q", o.Names)
			continue
		}
		theirs[f.Name] = true
		checkLikeTorchrun(t, f, o)
	}
	for _, f := range Flags() {
		if f.Torchrun && !theirs[f.Name] {
			t.Errorf("--%s counts as torchrun's, which does not have it", f.Name)
		}
	}
}

// checkLikeTorchrun compares a flag with torchrun's option.
func checkLikeTorchrun(t *testing.T, f Flag, o torchrunOption) {
	t.Helper()
	for _, name := range o.Names {
		if !slices.Contains([]string{"-" + f.Short, "--" + f.Name, "--" + f.Underscored()}, name) {
			t.Errorf("--%s: torchrun calls it %s too", f.Name, name)
		}
	}
	if f.takesValue() != o.Value {
		t.Errorf("--%s: takes a value: %v, in torchrun: %v", f.Name, f.takesValue(), o.Value)
	}
	for _, choice := range o.Choices {
		if !slices.Contains(f.Values, choice) {
			t.Errorf("--%s: %s is missing from %q", f.Name, choice, f.Values)
		}
	}
	switch {
	case o.Variable != "" && (len(f.Env) == 0 || f.Env[0] != o.Variable):
		t.Errorf("--%s: the variables are %q; torchrun reads %s", f.Name, f.Env, o.Variable)
	case o.Variable == "" && len(f.Env) > 0:
		t.Errorf("--%s: the variables are %q; torchrun reads none", f.Name, f.Env)
	}
	if o.Default != nil && f.Default != "" && *o.Default != f.Default {
		t.Errorf("--%s: the default is %s, in torchrun %s", f.Name, f.Default, *o.Default)
	}
	if f.Torchrun == (f.Name == "use-env") {
		t.Errorf("--%s: counts as torchrun's: %v; only torch.distributed.launch has --use-env", f.Name, f.Torchrun)
	}
}
