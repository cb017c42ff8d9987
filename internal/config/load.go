package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/elasticrun/elasticrun/internal/scheduler"
)

// FileName is the config file that is looked for in the working directory and,
// below elasticrun/, in the user's config folder (os.UserConfigDir).
const FileName = "elasticrun.yaml"

// Load resolves the command line, without the program's name, together with the
// process environment and the config file. Counter answers --nproc-per-node auto,
// cpu and gpu.
//
// Its errors are ErrHelp, ErrVersion and *UsageError.
func Load(args []string, counter Counter) (*Config, error) {
	line, err := splitArgs(args)
	if err != nil {
		return nil, err
	}
	from, err := here(asked(args, line.command), counter)
	if err != nil {
		return nil, err
	}
	return loadLine(line, from)
}

// asked returns the arguments of a launch, of which command is the end, without those by which it is only asked about.
func asked(args, command []string) []string {
	options := slices.Clone(args[:len(args)-len(command)])
	options = slices.DeleteFunc(options, func(arg string) bool { return arg == "--json" || underscoreToDash(arg) == "--dry-run" })
	return append(options, command...)
}

// here is what this process is surrounded by; args are the launch's.
func here(args []string, counter Counter) (surroundings, error) {
	self, err := os.Executable()
	if err != nil {
		return surroundings{}, fmt.Errorf("find this program: %w", err)
	}
	return surroundings{
		Counter: counter, newID: newRunID, env: os.LookupEnv, host: thisHost(), self: append([]string{self}, args...), secret: readSecret,
	}, nil
}

// loadLine resolves a command line that has been split.
func loadLine(line commandLine, from surroundings) (*Config, error) {
	settings, file, err := gather(Flags(), line.options)
	if err != nil {
		return nil, err
	}
	c, err := resolve(line.command, settings, from)
	if err != nil {
		return nil, err
	}
	if file != "" {
		if c.ConfigFile, err = filepath.Abs(file); err != nil {
			return nil, fmt.Errorf("find the working directory: %w", err)
		}
	}
	return c, nil
}

// thisHost reads what schedulers are recognized by. What cannot be read is not there.
func thisHost() scheduler.Host {
	name, _ := os.Hostname()
	hosts, _ := os.ReadFile("/etc/hosts")
	return scheduler.Host{Name: name, Hosts: string(hosts)}
}

// NewFlagSet returns the table as pflag flags: text for everything but the
// switches, since interpretation comes after all layers are merged. Parsing
// stops at the first argument that is no flag.
func NewFlagSet() *pflag.FlagSet {
	return flagSet(Flags())
}

func flagSet(flags []Flag) *pflag.FlagSet {
	set := pflag.NewFlagSet("elasticrun", pflag.ContinueOnError)
	set.SetInterspersed(false)
	for _, f := range flags {
		switch f.Kind {
		case KindAction:
		case KindBool:
			set.BoolP(f.Name, f.Short, false, f.Help)
		default:
			set.StringP(f.Name, f.Short, f.Default, f.Help)
		}
	}
	return set
}

// gather merges flags, environment, config file and defaults. It returns one
// setting for each of the flags, in their order, and the config file that was read.
func gather(flags []Flag, options []string) ([]Setting, string, error) {
	l, err := newLayers(flags, options)
	if err != nil {
		return nil, "", err
	}
	named, _ := findFlag(l.flags, "config")
	file, err := readFile(l.setting(named))
	if err != nil {
		return nil, "", err
	}
	if err := l.MergeConfigMap(file.values); err != nil {
		return nil, "", &UsageError{Where: shown(file.path), Problem: oneLine(err)}
	}
	l.file = shown(file.path)
	settings := l.settings()
	if err := file.refuse(l.flags, settings); err != nil {
		return nil, "", err
	}
	return settings, file.path, nil
}

// layers merges what sets the flags of one command.
type layers struct {
	*viper.Viper
	flags []Flag
	given *pflag.FlagSet
	file  string // config file that was merged; empty if none
}

// newLayers binds the command line, the environment and the defaults.
func newLayers(flags []Flag, options []string) (*layers, error) {
	l := &layers{Viper: viper.New(), flags: flags, given: flagSet(flags)}
	if err := l.given.Parse(options); err != nil {
		return nil, &UsageError{Problem: err.Error()}
	}
	l.AllowEmptyEnv(true)
	for _, f := range flags {
		if f.Kind == KindAction {
			continue
		}
		if err := l.BindPFlag(f.Name, l.given.Lookup(f.Name)); err != nil {
			return nil, fmt.Errorf("bind flag --%s: %w", f.Name, err)
		}
		if err := l.BindEnv(append([]string{f.Name}, f.Env...)...); len(f.Env) > 0 && err != nil {
			return nil, fmt.Errorf("bind environment of --%s: %w", f.Name, err)
		}
	}
	return l, nil
}

// settings returns one setting per flag, in the table's order.
func (l *layers) settings() []Setting {
	var settings []Setting
	for _, f := range l.flags {
		if f.Kind != KindAction {
			settings = append(settings, l.setting(f))
		}
	}
	return settings
}

// setting returns the value that viper chose and the layer it came from.
func (l *layers) setting(f Flag) Setting {
	s := Setting{Name: f.Name, Value: l.GetString(f.Name)}
	isSet := func(env string) bool { _, ok := os.LookupEnv(env); return ok }
	if l.given.Changed(f.Name) {
		s.Source = Source{Kind: FromFlag}
	} else if i := slices.IndexFunc(f.Env, isSet); i >= 0 {
		s.Source = Source{FromEnv, f.Env[i]}
	} else if l.InConfig(f.Name) {
		s.Source = Source{FromFile, l.file}
	}
	return s
}

// parseFile decodes a config file, keys as in the table, values as text. The
// codec is called directly because viper's own reading lower-cases keys, turns
// dots into nesting and drops empty values before they can be checked.
func parseFile(path string, data []byte) (map[string]any, error) {
	decoder, err := viper.NewCodecRegistry().Decoder("yaml")
	if err != nil {
		return nil, fmt.Errorf("find the YAML decoder: %w", err)
	}
	if err := checkText(data); err != nil {
		return nil, &UsageError{Where: path, Problem: err.Error()}
	}
	raw := map[string]any{}
	if err := decoder.Decode(data, raw); err != nil {
		return nil, &UsageError{Where: path, Problem: yamlProblem(err.Error())}
	}
	values := make(map[string]any, len(raw))
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		f, err := fileKey(key)
		if err != nil {
			return nil, &UsageError{Where: path + ": " + shown(key), Problem: err.Error()}
		}
		if _, twice := values[f.Name]; twice {
			return nil, &UsageError{Where: path + ": " + shown(key), Problem: "given in both spellings; keep one"}
		}
		text, err := fileValue(f.Kind, raw[key])
		if err != nil {
			return nil, &UsageError{Where: path + ": " + shown(key), Problem: err.Error()}
		}
		values[f.Name] = text
	}
	return values, nil
}

// fileKey finds the flag that a key of the config file stands for.
func fileKey(key string) (Flag, error) {
	flags := Flags()
	f, ok := findFlag(flags, key)
	if ok && !f.CommandLineOnly {
		return f, nil
	}
	if ok {
		return Flag{}, errors.New("belongs on the command line, not into a config file")
	}
	var names []string
	for _, f := range flags {
		if !f.CommandLineOnly {
			names = append(names, f.Name)
		}
	}
	if near := nearest(underscoreToDash(key), names); near != "" {
		return Flag{}, fmt.Errorf("unknown key; the nearest is %s", near)
	}
	return Flag{}, errors.New("unknown key; keys are the long flags without their dashes (the script is given on the command line)")
}

// fileValue checks a YAML value's type and returns its command-line form.
// Numbers are not taken for plain text: YAML would turn 010 into 8 and 1.10
// into 1.1 before anybody could see it.
func fileValue(kind Kind, value any) (string, error) {
	switch v := value.(type) {
	case string:
		if kind == KindString || kind == KindSpec {
			return v, nil
		}
	case int:
		if kind == KindInt || kind == KindSeconds || kind == KindSpec {
			return strconv.Itoa(v), nil
		}
	case float64:
		if kind == KindSeconds {
			return strconv.FormatFloat(v, 'g', -1, 64), nil
		}
	case bool:
		if kind == KindBool {
			return strconv.FormatBool(v), nil
		}
	}
	want := map[Kind]string{
		KindString: "text", KindSpec: "text or a whole number", KindInt: "a whole number",
		KindSeconds: "a number of seconds", KindBool: "true or false",
	}[kind]
	switch v := value.(type) {
	case nil:
		return "", fmt.Errorf("must be %s, got nothing", want)
	case []any:
		return "", fmt.Errorf("must be %s, got a list", want)
	case map[string]any, map[any]any:
		return "", fmt.Errorf("must be %s, got a map", want)
	case string:
		return "", fmt.Errorf("must be %s, got %q", want, v)
	}
	if kind == KindString {
		return "", fmt.Errorf("must be text, got %v: put it in quotes", value)
	}
	return "", fmt.Errorf("must be %s, got %v", want, value)
}

// reason returns an error of the os package without the path, which the message
// names already.
func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// oneLine joins the lines of a YAML error.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
