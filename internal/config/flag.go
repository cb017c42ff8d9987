package config

import (
	"slices"
	"strings"
)

// Kind is the type of a flag's value.
type Kind int

// The kinds of values. They decide what a config file may hold; values.go has the finer checks.
const (
	KindString  Kind = iota // text
	KindSpec                // text that may look like a number, such as 2, 1:4 or auto
	KindInt                 // a whole number
	KindSeconds             // a time: seconds, with decimals, or a duration such as 1m30s
	KindBool                // a switch: takes no value on the command line
	KindAction              // ends parsing: --help, --version, --print-completion
)

// Effect says what the launcher does with the file or command that a flag names. A config file that others could have
// written must not set flags whose effect goes beyond Reads.
type Effect int

// The effects.
const (
	NoEffect Effect = iota // the flag names neither a file nor a command
	Reads                  // the launcher reads a file
	Writes                 // the launcher creates or changes files
	Executes               // the launcher executes a command
)

// Flag is one entry of a command's flag table.
type Flag struct {
	// Name is the long name in its dashed spelling, without leading dashes. It is also the key in the config file.
	Name string
	// Alias is an older name, which the command line and the config file accept too; empty if there is none.
	Alias string
	// Short is the one-letter form; empty if there is none.
	Short string
	// Env lists the environment variables that set the flag. The first one that is set wins.
	Env []string
	// Kind is the type of the value.
	Kind Kind
	// Default is the value, in command-line form, when nothing sets the flag.
	Default string
	// Placeholder names the value in help texts; empty for switches. FILE and DIR also select the completion.
	Placeholder string
	// Values are words that the completion offers. Other values, such as numbers, may be valid too.
	Values []string
	// Help says what the flag does, in one or a few sentences.
	Help string
	// Group is the heading under which help and reference list the flag.
	Group string
	// Torchrun marks flags of torchrun. Only these may be abbreviated.
	Torchrun bool
	// Effect is what happens to the file or command that the value names.
	Effect Effect
	// CommandLineOnly marks flags that a config file cannot hold.
	CommandLineOnly bool

	// parse checks the value and converts it; nil for switches and for plain text. See [reader.decode].
	parse func(string) (any, error)
}

// takesValue reports whether a value follows the flag on the command line. Of the actions those with Values take one.
func (f Flag) takesValue() bool {
	return f.Kind != KindBool && (f.Kind != KindAction || len(f.Values) > 0)
}

// as makes a typed parser fit [Flag].
func as[T any](parse func(string) (T, error)) func(string) (any, error) {
	return func(s string) (any, error) { return parse(s) }
}

// Underscored returns the flag's other spelling: nproc_per_node.
func (f Flag) Underscored() string { return strings.ReplaceAll(f.Name, "-", "_") }

func underscoreToDash(s string) string { return strings.ReplaceAll(s, "_", "-") }

// findFlag returns the flag with this long name or alias, in either spelling.
func findFlag(flags []Flag, name string) (Flag, bool) {
	name = underscoreToDash(name)
	i := slices.IndexFunc(flags, func(f Flag) bool { return name != "" && (f.Name == name || f.Alias == name) })
	if i < 0 {
		return Flag{}, false
	}
	return flags[i], true
}
