package config

import (
	_ "embed" // the fixed text of the reference
	"fmt"
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/internal/exitcode"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

// Help returns the text of elasticrun --help, at most 100 columns wide.
func Help() string {
	var b strings.Builder
	b.WriteString(`Start, watch and restart the workers of a distributed training job: torchrun's command line.

Usage:
  elasticrun [flags] SCRIPT [ARGS...]
  elasticrun explain [flags] SCRIPT   print what a launch would do, and start nothing
  elasticrun doctor [flags] [SCRIPT]  check this machine
  elasticrun status [flags]           show what a job is doing
  elasticrun stacks [flags]           show where each worker's Python code is
  elasticrun ps [--json]              list the jobs on this machine
  elasticrun stop [flags]             end a job on all of its nodes
  elasticrun logs [flags] [RUN]       show the logs of a run
  elasticrun store [flags]            run a store outside of a job
  elasticrun simulate [flags]         simulate a large rendezvous on this machine
  elasticrun completion SHELL         completion for bash, zsh, fish or powershell
  elasticrun version                  show the version

elasticrun COMMAND --help describes a command. The first argument that is no flag is the script; the
arguments after it are passed to it unchanged. A name is a command only as the first argument:
./store is a script.
`)
	writeLaunchFlags(&b)
	return b.String()
}

// TorchrunHelp returns the text of --help for a link to elasticrun that is named torchrun, at most 100 columns wide.
func TorchrunHelp() string {
	var b strings.Builder
	b.WriteString(`Start, watch and restart the workers of a distributed training job.

Usage:
  torchrun [flags] SCRIPT [ARGS...]

This torchrun is a link to elasticrun. It has no commands: elasticrun --help lists those of
elasticrun. The first argument that is no flag is the script; the arguments after it are passed to
it unchanged.
`)
	writeLaunchFlags(&b)
	return b.String()
}

func writeLaunchFlags(b *strings.Builder) {
	for _, group := range groups() {
		fmt.Fprintf(b, "\n%s:\n", group)
		for _, f := range Flags() {
			if f.Group == group {
				b.WriteString(helpEntry(f))
			}
		}
	}
	b.WriteString(`
Names may have dashes or underscores. A flag overrides the environment, which overrides the config
file, which overrides the scheduler's value, which overrides the default. --nproc-per-node is
PET_NPROC_PER_NODE in the environment and nproc-per-node in the config file. The variables of flags
that torchrun does not have start with ELASTICRUN_.
`)
}

// The explanations start at helpColumn and end at helpWidth.
const (
	helpColumn = 34
	helpWidth  = 100
)

func helpEntry(f Flag) string {
	head := "      --" + f.Name
	if f.Short != "" {
		head = "  -" + f.Short + ", --" + f.Name
	}
	if f.Placeholder != "" {
		head += " " + f.Placeholder
	}
	text := f.Help
	if f.Default != "" && !strings.Contains(text, "Default: ") {
		text += " (" + f.Default + ")"
	}
	lines := wrap(text, helpWidth-helpColumn)
	if len(head) > helpColumn-2 {
		lines = slices.Insert(lines, 0, "")
	}
	var b strings.Builder
	for i, line := range lines {
		lead := ""
		if i == 0 {
			lead = head
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf("%-*s%s", helpColumn, lead, line), " ") + "\n")
	}
	return b.String()
}

// wrap breaks text at blanks into lines of at most width bytes.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

//go:embed reference.md
var referencePage string

// Reference returns docs/flags.md.
func Reference() string {
	var tables, options strings.Builder
	for _, group := range groups() {
		fmt.Fprintf(&tables, "\n## %s\n\n"+referenceHead, group)
		for _, f := range Flags() {
			if f.Group == group {
				tables.WriteString(referenceRow(f))
			}
		}
	}
	fill := []string{}
	for _, command := range Subcommands() {
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
		"{executes}", keysWith(Executes), "{writes}", keysWith(Writes))
	return strings.NewReplacer(fill...).Replace(referencePage)
}

// keysWith lists the config file's keys that have an effect.
func keysWith(effect Effect) string {
	var keys []string
	for _, f := range Flags() {
		if f.Effect == effect && !f.CommandLineOnly {
			keys = append(keys, "`"+f.Name+"`")
		}
	}
	return strings.Join(keys, ", ")
}

const referenceHead = "| flag | environment | default | meaning |\n|---|---|---|---|\n"

func referenceRow(f Flag) string {
	name := "`--" + f.Name
	if f.Placeholder != "" {
		name += " " + f.Placeholder
	}
	name += "`"
	if f.Short != "" {
		name = "`-" + f.Short + "`, " + name
	}
	if !f.Torchrun && slices.Contains(groups(), f.Group) {
		name += " †"
	}
	env := "none"
	if len(f.Env) > 0 {
		env = "`" + strings.Join(f.Env, "`, `") + "`"
	}
	value := f.Default
	switch {
	case f.Kind == KindAction:
		value = ""
	case f.Kind == KindBool:
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
