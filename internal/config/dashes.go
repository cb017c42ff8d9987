package config

import (
	"strings"
	"unicode"

	"github.com/elasticrun/elasticrun/internal/printable"
)

// isDash recognizes the hyphen, and the dashes that editors and web pages put in its place.
func isDash(r rune) bool { return unicode.Is(unicode.Pd, r) || r == '−' }

// checkDashes refuses a flag with dashes that are no hyphens: "–nnodes" and "--nproc‑per‑node" look like flags. Such an
// argument would be taken for the script.
func checkDashes(arg string) error {
	name, _, _ := strings.Cut(arg, "=")
	foreign := func(r rune) bool { return isDash(r) && r != '-' }
	if !isDash([]rune(name + " ")[0]) || !strings.ContainsFunc(name, foreign) {
		return nil
	}
	bare := strings.Map(func(r rune) rune {
		if isDash(r) {
			return '-'
		}
		return r
	}, strings.TrimLeftFunc(name, isDash))
	flag := "--" + bare
	if len(bare) == 1 {
		flag = "-" + bare
	}
	return &UsageError{
		Where: printable.Quote(arg), Problem: "has a dash that is no hyphen, as web pages show it: write " + flag,
	}
}

// scriptAsValue returns the error of a command line without a script whose last flag has taken the script as its value,
// or nil. options are --name=value.
func scriptAsValue(flags []Flag, options []string) error {
	if len(options) == 0 {
		return nil
	}
	name, value, _ := strings.Cut(strings.TrimPrefix(options[len(options)-1], "--"), "=")
	f, _ := findFlag(flags, name)
	if !f.takesValue() || f.Effect != NoEffect || !strings.HasSuffix(value, ".py") && !strings.HasSuffix(value, ".sh") {
		return nil
	}
	return &UsageError{
		Where: "--" + name + "=" + printable.Quote(value),
		Problem: printable.Quote(value) + " is taken as the flag's value, and no script is left: write --" + name + "=" +
			f.Placeholder + " " + printable.ShellWord(value),
	}
}
