package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SourceKind says which layer a value came from.
type SourceKind int

// The layers, weakest first.
const (
	FromDefault SourceKind = iota
	FromScheduler
	FromFile
	FromEnv
	FromFlag
)

// Source is where a setting's value came from.
type Source struct {
	Kind SourceKind
	// Name is the variable for FromEnv, the file for FromFile, and for FromScheduler what says so, such as
	// SLURM_NODEID=2; else empty.
	Name string
}

// String returns "default", "flag", or the name of the variable, the file or the scheduler's word.
func (s Source) String() string {
	switch s.Kind {
	case FromFlag:
		return "flag"
	case FromEnv, FromFile, FromScheduler:
		return s.Name
	}
	return "default"
}

// Setting is the value of one flag before it is interpreted.
type Setting struct {
	// Name is the flag's name.
	Name string
	// Value is its text, as the command line would hold it.
	Value string
	// Source is the layer that won.
	Source Source
}

// Given tells whether the user set the value, as opposed to the surroundings and the default.
func (s Setting) Given() bool { return s.Source.Kind > FromScheduler }

// Where names the setting as the user wrote it, for messages.
func (s Setting) Where() string {
	value := shown(s.redacted().Value)
	switch s.Source.Kind {
	case FromDefault:
		return "--" + s.Name
	case FromScheduler:
		return s.Source.Name
	case FromEnv:
		return s.Source.Name + "=" + value
	case FromFile:
		return s.Source.Name + ": " + s.Name + ": " + value
	}
	if f, ok := findFlag(Flags(), s.Name); ok && f.Kind == KindBool {
		return "--" + s.Name
	}
	return "--" + s.Name + "=" + value
}

// redacted returns the setting without the password that it may hold.
func (s Setting) redacted() Setting {
	if s.Name == "rdzv-conf" {
		s.Value = redactConf(s.Value)
	}
	return s
}

// reader takes typed values out of settings. It keeps the first error, after
// which every read returns a zero value; so a run of reads is checked once.
type reader struct {
	settings map[string]Setting
	warnings []string
	err      error
}

// read returns the setting's value as parse understands it.
func read[T any](r *reader, name string, parse func(string) (T, error)) T {
	var zero T
	if r.err != nil {
		return zero
	}
	v, err := parse(r.settings[name].Value)
	if err != nil {
		r.fail(name, err.Error())
		return zero
	}
	return v
}

func (r *reader) text(name string) string {
	return read(r, name, func(s string) (string, error) { return s, nil })
}

// flag reads a switch. torchrun's rule for a variable is int(value) != 0; on the
// command line and in a file the value is already true or false.
func (r *reader) flag(name string) bool {
	return read(r, name, func(s string) (bool, error) {
		if r.settings[name].Source.Kind != FromEnv {
			return s == "true", nil
		}
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil {
			return false, errors.New("must be a whole number: 1 is on, 0 is off")
		}
		return n != 0, nil
	})
}

func (r *reader) given(name string) bool { return r.settings[name].Given() }

// inferred tells whether the surroundings set the value.
func (r *reader) inferred(name string) bool { return r.settings[name].Source.Kind == FromScheduler }

// fail keeps the first error, blamed on one setting.
func (r *reader) fail(name, problem string) {
	if r.err == nil {
		r.err = &UsageError{Where: r.settings[name].Where(), Problem: problem}
	}
}

// warn adds a warning about one setting.
func (r *reader) warn(name, problem string) {
	r.warnings = append(r.warnings, r.settings[name].Where()+": "+problem)
}

// between parses a whole number in [low, high].
func between(low, high int) func(string) (int, error) {
	return func(s string) (int, error) {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		switch {
		case err != nil && !errors.Is(err, strconv.ErrRange):
			return 0, errors.New("must be a whole number")
		case err != nil || n < low || n > high:
			return 0, fmt.Errorf("must be between %d and %d", low, high)
		}
		return n, nil
	}
}

// maxSeconds bounds times, 31 years: beyond it lies a typing error, and further
// on the end of time.Duration.
const maxSeconds = 1e9

// seconds parses a time in seconds, 0 or more.
func seconds(s string) (time.Duration, error) {
	n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange), math.IsNaN(n):
		return 0, errors.New("must be a number of seconds")
	case n < 0:
		return 0, errors.New("must not be negative")
	case n > maxSeconds:
		return 0, fmt.Errorf("must be at most %.0f seconds", maxSeconds)
	}
	return time.Duration(n * float64(time.Second)), nil
}

// aboveZero parses a time in seconds that is not 0.
func aboveZero(s string) (time.Duration, error) {
	d, err := seconds(s)
	if err == nil && d <= 0 {
		err = errors.New("must be above 0")
	}
	return d, err
}

// oneOf accepts the listed values only.
func oneOf(values ...string) func(string) (string, error) {
	return func(s string) (string, error) {
		if slices.Contains(values, s) {
			return s, nil
		}
		return "", errors.New("must be one of " + strings.Join(values, ", "))
	}
}
