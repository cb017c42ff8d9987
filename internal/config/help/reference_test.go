package help

import (
	_ "embed" // the fixed text of the reference
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/exitcode"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

var update = flag.Bool("update", false, "rewrite docs/flags.md")

func TestReferenceIsUpToDate(t *testing.T) {
	const path = "../../../docs/flags.md"
	if *update {
		if err := os.WriteFile(path, []byte(reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(reference(), string(got)); diff != "" {
		t.Errorf(
			"docs/flags.md is not what the table says; go test ./internal/config/help -update rewrites it (-want +got):\n%s",
			diff,
		)
	}
	if left := regexp.MustCompile(`(^|[^$])\{\w+\}`).FindString(reference()); left != "" {
		t.Errorf("the placeholder %s of flags.md was not filled in", left)
	}
}

//go:embed flags.md
var flagsPage string

// reference returns docs/flags.md.
func reference() string {
	var tables, options strings.Builder
	for _, group := range config.Groups() {
		fmt.Fprintf(&tables, "\n## %s\n\n"+referenceHead, group)
		for _, f := range config.Flags() {
			if f.Group == group {
				tables.WriteString(referenceRow(f))
			}
		}
	}
	fill := []string{}
	for _, command := range config.Subcommands() {
		var rows strings.Builder
		rows.WriteString(referenceHead)
		for _, f := range command.Flags() {
			rows.WriteString(referenceRow(f))
		}
		fill = append(fill, "{"+command.Name+"}", rows.String())
	}
	for _, o := range rdzvconf.Options() {
		fmt.Fprintf(&options, "| `%s` | %s | %s |\n", strings.Join(o.Names, "`, `"), strings.Join(o.Backends, ", "), o.Help)
	}
	fill = append(fill, "{flags}", tables.String(), "{options}", options.String(), "{reasons}", exitcode.ReasonList(),
		"{executes}", keysWith(config.Executes), "{writes}", keysWith(config.Writes))
	return strings.NewReplacer(fill...).Replace(flagsPage)
}

// keysWith lists the config file's keys that have an effect.
func keysWith(effect config.Effect) string {
	var keys []string
	for _, f := range config.Flags() {
		if f.Effect == effect && !f.CommandLineOnly {
			keys = append(keys, "`"+f.Name+"`")
		}
	}
	return strings.Join(keys, ", ")
}

const referenceHead = "| flag | environment | default | meaning |\n|---|---|---|---|\n"

func referenceRow(f config.Flag) string {
	name := "`--" + f.Name
	if f.Placeholder != "" {
		name += " " + f.Placeholder
	}
	name += "`"
	if f.Short != "" {
		name = "`-" + f.Short + "`, " + name
	}
	if !f.Torchrun && slices.Contains(config.Groups(), f.Group) {
		name += " †"
	}
	env := "none"
	if len(f.Env) > 0 {
		env = "`" + strings.Join(f.Env, "`, `") + "`"
	}
	value := f.Default
	switch {
	case f.Kind == config.KindAction:
		value = ""
	case f.Kind == config.KindBool:
		value = "off"
	case value != "":
		value = "`" + value + "`"
	}
	cells := []string{name, env, value, f.Help}
	for i, cell := range cells {
		cells[i] = strings.ReplaceAll(cell, "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}
