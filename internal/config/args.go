package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Load returns these when the flag stands before the script.
var (
	ErrHelp    = errors.New("help requested")
	ErrVersion = errors.New("version requested")
)

// commandLine is argv, split at the script.
type commandLine struct {
	// options are the flags in their one canonical form, --name=value.
	options []string
	// command is the script and, untouched, all that follows it; empty if there
	// is no script.
	command []string
}

// splitArgs splits argv, the arguments after the program's name.
func splitArgs(argv []string) (commandLine, error) {
	p := argParser{flags: Flags(), hint: "elasticrun --help lists them, and the script's own flags go behind the script"}
	return p.split(argv)
}

// argParser knows the flags of one command.
type argParser struct {
	flags   []Flag
	hint    string // what to say of a flag that nothing is like
	options []string
}

// split reads argv by argparse's rules: the first argument that is no option is the script, "--" ends the
// options before it, names may have dashes or underscores and torchrun's may be
// cut short. Nothing after the script is looked at. Its rules follow Python 3.13;
// TestSplitArgs names the places where it is stricter or more lenient.
func (p *argParser) split(argv []string) (commandLine, error) {
	for i := 0; i < len(argv); {
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

// isOption tells an option from a value or script. Like argparse it takes as
// values what looks like a negative number, a lone "-", and arguments with a
// space in the place of the name.
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

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// option consumes the option at the head of argv and returns how many arguments
// it took.
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

// cluster reads short options: switches may be joined, and the first that takes
// a value takes the rest of the argument (-mr3, -r=3) or the next one (-mr 3).
func (p *argParser) cluster(argv []string) (int, error) {
	rest := argv[0][1:]
	for {
		flag, ok := p.short(rest[0])
		if !ok {
			return 0, p.unknown(argv[0], strings.TrimPrefix(argv[0], "-"))
		}
		rest = rest[1:]
		if flag.Kind.takesValue() || rest == "" || rest[0] == '=' {
			value, _ := strings.CutPrefix(rest, "=")
			return p.apply(flag, value, rest != "", argv)
		}
		if _, err := p.apply(flag, "", false, argv); err != nil {
			return 0, err
		}
	}
}

// apply records one option. If its value is not in the same argument, it is the
// next one.
func (p *argParser) apply(flag Flag, value string, hasValue bool, argv []string) (int, error) {
	if !flag.Kind.takesValue() {
		switch {
		case hasValue:
			return 0, &UsageError{Where: "--" + flag.Name, Problem: fmt.Sprintf("takes no value, but got %q", value) + switchOff(flag)}
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
	p.options = append(p.options, "--"+flag.Name+"="+value)
	return used, nil
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
		problem += fmt.Sprintf(" (%q starts with a dash and is only taken as a value behind a =)", argv[1])
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

// long finds a flag by its name or by an unambiguous beginning of a torchrun
// flag's name. The two spellings of one flag are one flag.
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
		return Flag{}, &UsageError{Where: "--" + name, Problem: "unknown flag; --" + ours + " must be spelt out"}
	}
	return Flag{}, p.unknown("--"+name, name)
}

func (p *argParser) unknown(arg, name string) error {
	names := make([]string, len(p.flags))
	for i, f := range p.flags {
		names[i] = f.Name
	}
	problem := "unknown flag; " + p.hint
	if near := nearest(underscoreToDash(name), names); near != "" {
		problem = "unknown flag; the nearest is --" + near
	}
	return &UsageError{Where: shown(arg), Problem: problem}
}
