package config

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/internal/printable"
)

// UsageError is bad input: a flag, a variable, a config file, or a combination of them. Its text is one line. The
// launcher ends with code 2.
type UsageError struct {
	// Where names the input as the user wrote it: "--nnodes=4:2", "PET_NNODES=4:2" or "elasticrun.yaml: nnodes: 4:2".
	// It is empty if the command line as a whole is wrong.
	Where string
	// Problem says what is wrong and what to do.
	Problem string
	// Try are command lines that the user can type instead, for a line each after the error's.
	Try []string
}

// Error implements error. The text is printable, whatever the input holds.
func (e *UsageError) Error() string {
	if e.Where == "" {
		return printable.Line(e.Problem)
	}
	return printable.Line(e.Where + ": " + e.Problem)
}

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
	// Name is the variable for FromEnv, the file for FromFile, and the evidence for FromScheduler, such as
	// SLURM_NODEID=2. It is empty for the other kinds.
	Name string
}

// String returns "default", "flag", or the source's name.
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
	// Value is its text, as on a command line.
	Value string
	// Source is the layer that won.
	Source Source
	// Switch says that the flag takes no value on the command line.
	Switch bool
}

// Given reports whether the user set the value, as opposed to a scheduler or the default.
func (s Setting) Given() bool { return s.Source.Kind > FromScheduler }

// Where names the setting as the user wrote it, for messages.
func (s Setting) Where() string {
	value := printable.Quote(s.redacted().Value)
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
	if s.Switch {
		return "--" + s.Name
	}
	return "--" + s.Name + "=" + value
}

// redacted returns the setting without a password in its value.
func (s Setting) redacted() Setting {
	if s.Name == "rdzv-conf" {
		s.Value = redactConf(s.Value)
	}
	return s
}

// reader converts the settings of one command to typed values. It keeps the first error. After an error every read
// returns a zero value, so that a caller checks err once after many reads.
type reader struct {
	flags    []Flag
	settings map[string]Setting
	warnings []string
	err      error
}

func newReader(flags []Flag, settings []Setting) *reader {
	r := &reader{flags: flags, settings: make(map[string]Setting, len(settings))}
	for _, s := range settings {
		r.settings[s.Name] = s
	}
	return r
}

// decode fills the fields of the struct that target points to. A field's tag names its flag, and the flag's table entry
// has the parser: `flag:"max-restarts"`. If the user did not give the flag, a pointer stays nil, and a field with the
// tag option given stays zero: `flag:"log-max-size,given"`. Fields without a tag are left alone.
func (r *reader) decode(target any) {
	for description, field := range reflect.ValueOf(target).Elem().Fields() {
		name, option, _ := strings.Cut(description.Tag.Get("flag"), ",")
		optional := option == "given" || field.Kind() == reflect.Pointer
		if name == "" || optional && !r.given(name) {
			continue
		}
		parsed := reflect.ValueOf(r.parsed(name))
		if r.err != nil {
			return
		}
		if field.Kind() == reflect.Pointer {
			field.Set(reflect.New(field.Type().Elem()))
			field = field.Elem()
		}
		field.Set(parsed)
	}
}

// parsed returns the setting's value as the flag's table entry converts it.
func (r *reader) parsed(name string) any {
	f, _ := findFlag(r.flags, name)
	switch {
	case f.Kind == KindBool:
		return r.isOn(name)
	case f.parse == nil:
		return r.text(name)
	}
	return read(r, name, f.parse)
}

// value is parsed with the type that the flag's parser returns.
func value[T any](r *reader, name string) T {
	parsed := r.parsed(name)
	v, ok := parsed.(T)
	if !ok && r.err == nil { // an error leaves the zero value
		panic(fmt.Sprintf("config: the parser of --%s returns %T", name, parsed))
	}
	return v
}

// read returns the setting's value as parse converts it.
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

// isOn reads a switch. For a variable torchrun's rule is int(value) != 0 (torch 2.14
// torch/distributed/argparse_util.py). On the command line and in a file the value is already true or false.
func (r *reader) isOn(name string) bool {
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

// inferred reports whether a scheduler set the value.
func (r *reader) inferred(name string) bool { return r.settings[name].Source.Kind == FromScheduler }

// fail records an error about one setting, unless there is an error already. try are command lines to type instead.
func (r *reader) fail(name, problem string, try ...string) {
	if r.err == nil {
		r.err = &UsageError{Where: r.settings[name].Where(), Problem: problem, Try: try}
	}
}

// warn adds a warning about one setting.
func (r *reader) warn(name, problem string) {
	r.warnings = append(r.warnings, r.settings[name].Where()+": "+problem)
}

// printableWarnings returns the warnings, each as one line that does nothing to a terminal.
func (r *reader) printableWarnings() []string {
	for i, w := range r.warnings {
		r.warnings[i] = printable.Line(w)
	}
	return r.warnings
}
