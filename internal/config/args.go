package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/internal/nearest"
	"github.com/elasticrun/elasticrun/internal/printable"
)

// Load returns these for --help and --version before the script.
var (
	ErrHelp    = errors.New("help requested")
	ErrVersion = errors.New("version requested")
)

// CompletionRequest is the error that Load returns for --print-completion.
type CompletionRequest struct {
	// Shell is one of Shells.
	Shell string
}

// Error implements error.
func (c *CompletionRequest) Error() string { return "completion script for " + c.Shell + " requested" }

// commandLine is argv, split at the script.
type commandLine struct {
	// options are the flags in the canonical form --name=value.
	options []string
	// command is the script and all that follows it, unchanged; empty if there is no script.
	command []string
}

// launchHint is argParser.hint for a launch.
const launchHint = "elasticrun --help lists them; the script's own flags go after the script"

// argParser parses the arguments of one command.
type argParser struct {
	flags   []Flag
	hint    string // the advice about an unknown flag without a similar one
	options []string
}

// split reads argv by the rules of Python's argparse (3.13). The first argument that is no option is the script. "--"
// ends the options before the script. Names may have dashes or underscores, and names of torchrun may be abbreviated.
// Arguments after the script are not examined. TestSplitArgs has the cases in which split is stricter or more
// lenient.
func (p *argParser) split(argv []string) (commandLine, error) {
	for i := 0; i < len(argv); {
		if err := checkDashes(argv[i]); err != nil {
			return commandLine{}, err
		}
		switch arg := argv[i]; {
		case arg == "--":
			return commandLine{p.options, argv[i+1:]}, nil
		case !p.isOption(arg):
			return commandLine{p.options, argv[i:]}, nil
		}
		used, err := p.option(argv[i:])
		if err != nil {
			return commandLine{}, err
		}
		i += used
	}
	return commandLine{options: p.options}, nil
}

// isOption distinguishes an option from a value or script. As in argparse, a negative number, a lone "-", and an
// argument with a space in the place of the name are values.
func (p *argParser) isOption(arg string) bool {
	if len(arg) < 2 || arg[0] != '-' {
		return false
	}
	if long, ok := strings.CutPrefix(arg, "--"); ok {
		name, _, _ := strings.Cut(long, "=")
		return !strings.Contains(name, " ")
	}
	if _, known := p.short(arg[1]); known {
		return true
	}
	return !isNegativeNumber(arg) && !strings.Contains(arg, " ")
}

// isNegativeNumber matches -N, -N.M and -.M.
func isNegativeNumber(arg string) bool {
	whole, fraction, hasPoint := strings.Cut(arg[1:], ".")
	if hasPoint {
		return isDigits(fraction) && (whole == "" || isDigits(whole))
	}
	return isDigits(whole)
}

// option parses the option at the start of argv and returns the number of arguments that it takes.
func (p *argParser) option(argv []string) (int, error) {
	if long, ok := strings.CutPrefix(argv[0], "--"); ok {
		name, value, hasValue := strings.Cut(long, "=")
		flag, err := p.long(name)
		if err != nil {
			return 0, err
		}
		return p.apply(flag, value, hasValue, argv)
	}
	return p.cluster(argv)
}

// cluster parses short options. Switches may be joined; the first flag with a value takes the rest of the argument
// (-mr3, -r=3) or the next argument (-mr 3).
func (p *argParser) cluster(argv []string) (int, error) {
	rest := argv[0][1:]
	for {
		flag, ok := p.short(rest[0])
		if !ok {
			return 0, p.unknown(argv[0], strings.TrimPrefix(argv[0], "-"))
		}
		rest = rest[1:]
		if flag.takesValue() || rest == "" || rest[0] == '=' {
			value, _ := strings.CutPrefix(rest, "=")
			return p.apply(flag, value, rest != "", argv)
		}
		if _, err := p.apply(flag, "", false, argv); err != nil {
			return 0, err
		}
	}
}

// apply records one option. A value that is not in the same argument is the next argument.
func (p *argParser) apply(flag Flag, value string, hasValue bool, argv []string) (int, error) {
	if !flag.takesValue() {
		switch {
		case hasValue:
			return 0, &UsageError{
				Where:   "--" + flag.Name,
				Problem: fmt.Sprintf("takes no value, but got %q", value) + switchOff(flag),
			}
		case flag.Name == "help":
			return 0, ErrHelp
		case flag.Name == "version":
			return 0, ErrVersion
		}
		p.options = append(p.options, "--"+flag.Name+"=true")
		return 1, nil
	}
	used := 1
	if !hasValue {
		if len(argv) < 2 || argv[1] == "--" || p.isOption(argv[1]) {
			return 0, &UsageError{Where: "--" + flag.Name, Problem: missingValue(flag, argv)}
		}
		value, used = argv[1], 2
	}
	if flag.Kind == KindAction {
		return 0, requestCompletion(flag, value)
	}
	p.options = append(p.options, "--"+flag.Name+"="+value)
	return used, nil
}

// requestCompletion returns the request for a shell's completion script, or the error of an unknown shell.
func requestCompletion(flag Flag, shell string) error {
	if _, err := oneOf(flag.Values...)(shell); err != nil {
		return &UsageError{Where: "--" + flag.Name + "=" + printable.Quote(shell), Problem: err.Error()}
	}
	return &CompletionRequest{Shell: shell}
}

func switchOff(flag Flag) string {
	if len(flag.Env) == 0 {
		return ""
	}
	return fmt.Sprintf("; to switch it off against a config file, set %s=0", flag.Env[0])
}

func missingValue(flag Flag, argv []string) string {
	problem := "needs a value: --" + flag.Name + "=" + flag.Placeholder
	if len(argv) > 1 {
		problem += fmt.Sprintf(" (%q starts with a dash, so it is a value only after =)", argv[1])
	}
	return problem
}

func (p *argParser) short(letter byte) (Flag, bool) {
	i := slices.IndexFunc(p.flags, func(f Flag) bool { return f.Short == string(rune(letter)) })
	if i < 0 {
		return Flag{}, false
	}
	return p.flags[i], true
}

// long finds a flag by its name, or by an unambiguous prefix of the name of a torchrun flag. The two spellings of a
// flag do not make a prefix ambiguous.
func (p *argParser) long(name string) (Flag, error) {
	if flag, ok := findFlag(p.flags, name); ok {
		return flag, nil
	}
	var found []Flag
	var ours string
	for _, f := range p.flags {
		switch {
		case name == "" || !strings.HasPrefix(f.Name, underscoreToDash(name)):
		case f.Torchrun:
			found = append(found, f)
		default:
			ours = f.Name
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		names := make([]string, len(found))
		for i, f := range found {
			names[i] = "--" + f.Name
		}
		return Flag{}, &UsageError{Where: "--" + name, Problem: "ambiguous: it could be " + strings.Join(names, ", ")}
	case ours != "":
		return Flag{}, &UsageError{Where: "--" + name, Problem: "unknown flag; --" + ours + " must be written in full"}
	}
	return Flag{}, p.unknown("--"+name, name)
}

func (p *argParser) unknown(arg, name string) error {
	name = underscoreToDash(name)
	names := make([]string, len(p.flags))
	launch := false
	for i, f := range p.flags {
		names[i] = f.Name
		launch = launch || f.Name == "nproc-per-node"
	}
	if err := scriptAsValue(p.flags, p.options); err != nil && launch {
		return err
	}
	hint := p.hint
	if near := nearest.Of(name, names); near != "" {
		hint = "the nearest is --" + near
	}
	if advice := foreignAdvice(name); advice != "" && launch {
		hint = advice
	}
	return &UsageError{Where: printable.Quote(arg), Problem: "unknown flag; " + hint}
}
