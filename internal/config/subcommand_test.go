package config

import (
	"errors"
	"strings"
	"testing"
)

func TestLoadExplain(t *testing.T) {
	clean(t)
	for _, tt := range []struct {
		name   string
		args   []string
		doctor bool
		json   bool
		script string
		err    string
	}{
		{name: "plain", args: []string{"t.py"}, script: "t.py"},
		{name: "json", args: []string{"--json", "--nproc-per-node=2", "t.py", "--json"}, json: true, script: "t.py"},
		{name: "json behind other flags", args: []string{"--nproc-per-node=2", "--json", "t.py"}, json: true, script: "t.py"},
		{name: "the script's own", args: []string{"t.py", "--json"}, script: "t.py"},
		{name: "no script", args: []string{"--json"}, err: "no script given: elasticrun [flags] SCRIPT [ARGS...]"},
		{name: "no script for a doctor", args: []string{"--json"}, doctor: true, json: true},
		{name: "a value", args: []string{"--json=yes", "t.py"}, err: `--json: takes no value, but got "yes"`},
		{name: "help", args: []string{"--help"}, err: ErrHelp.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			load := LoadExplain
			if tt.doctor {
				load = LoadDoctor
			}
			c, asJSON, err := load(tt.args, machine{})
			switch {
			case err != nil || tt.err != "":
				if err == nil || err.Error() != tt.err {
					t.Errorf("error %v, want %q", err, tt.err)
				}
			case asJSON != tt.json || c.Script != tt.script:
				t.Errorf("JSON %t, script %q", asJSON, c.Script)
			}
		})
	}
	if _, err := Load([]string{"--json", "t.py"}, machine{}); !errors.As(err, new(*UsageError)) {
		t.Errorf("the launch itself takes --json: %v", err)
	}
}

// TestSubcommandTables checks the tables of the subcommands as TestTable checks the launch's.
func TestSubcommandTables(t *testing.T) {
	for _, command := range Subcommands() {
		names := map[string]bool{}
		for _, f := range command.Flags() {
			if names[f.Name] {
				t.Errorf("%s --%s: the name is taken", command.Name, f.Name)
			}
			names[f.Name] = true
			if f.Name != strings.ToLower(f.Name) || strings.ContainsAny(f.Name, "_. =") || !strings.HasSuffix(f.Help, ".") {
				t.Errorf("%s --%s: bad name or help", command.Name, f.Name)
			}
			if (f.Placeholder != "") != f.takesValue() {
				t.Errorf("%s --%s: placeholder %q does not fit its kind", command.Name, f.Name, f.Placeholder)
			}
			_, inherited := findFlag(Flags(), f.Name)
			if f.Group != "elasticrun "+command.Name || !f.CommandLineOnly || !inherited && len(f.Env) > 0 {
				t.Errorf("%s --%s: group %q, variables %q", command.Name, f.Name, f.Group, f.Env)
			}
		}
	}
}

// TestSubcommandsCostLittle checks that looking up a command makes no flag table: every launch does it three times.
func TestSubcommandsCostLittle(t *testing.T) {
	const most = 20 // a flag table takes hundreds
	if n := testing.AllocsPerRun(10, func() { Subcommands() }); n > most {
		t.Errorf("%v allocations, want at most %d", n, most)
	}
}
