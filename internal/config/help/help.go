package help

import (
	"fmt"
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/internal/config"
)

// Launch returns the text of elasticrun --help, at most 100 columns wide.
func Launch() string {
	var b strings.Builder
	b.WriteString(`Start, watch and restart the workers of a distributed training job: torchrun's command line.

Usage:
  elasticrun [flags] SCRIPT [ARGS...]
  elasticrun COMMAND [ARGS...]

Commands:
`)
	for _, c := range config.Subcommands() {
		fmt.Fprintf(&b, "  elasticrun %-11s %s\n", c.Name, c.Short)
	}
	b.WriteString(`
elasticrun COMMAND --help describes a command. The first argument that is no flag is the script; the
arguments after it are passed to it unchanged. A name is a command only as the first argument:
./store is a script.
`)
	writeLaunchFlags(&b)
	return b.String()
}

// Torchrun returns the text of --help for a link to elasticrun that is named torchrun, at most 100 columns wide.
func Torchrun() string {
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

// Command returns the text of elasticrun NAME --help, at most 100 columns wide.
func Command(s config.Subcommand) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nUsage:\n  elasticrun %s\n", s.Intro, strings.TrimSpace(s.Name+" "+s.Args))
	switch {
	case s.Launch:
		b.WriteString("\nFlags, besides those of a launch (elasticrun --help):\n")
	case len(s.Flags()) > 0:
		b.WriteString("\nFlags:\n")
	}
	for _, f := range s.Flags() {
		b.WriteString(entry(f))
	}
	if s.Outro != "" {
		b.WriteString("\n" + s.Outro)
	}
	return b.String()
}

func writeLaunchFlags(b *strings.Builder) {
	for _, group := range config.Groups() {
		fmt.Fprintf(b, "\n%s:\n", group)
		for _, f := range config.Flags() {
			if f.Group == group {
				b.WriteString(entry(f))
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

// The explanations start at column and end at maxWidth.
const (
	column   = 34
	maxWidth = 100
)

func entry(f config.Flag) string {
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
	lines := wrap(text, maxWidth-column)
	if len(head) > column-2 {
		lines = slices.Insert(lines, 0, "")
	}
	var b strings.Builder
	for i, line := range lines {
		lead := ""
		if i == 0 {
			lead = head
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf("%-*s%s", column, lead, line), " ") + "\n")
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
