package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/internal/scheduler"
)

// Load resolves the command line, without the program's name, together with the environment and the config file.
// Counter answers --nproc-per-node auto, cpu, gpu and xpu.
//
// Its errors are ErrHelp, ErrVersion, *CompletionRequest and *UsageError.
func Load(args []string, counter Counter) (*Config, error) {
	c, _, err := loadLaunch(args, counter, false)
	return c, err
}

// LoadExplain resolves the arguments of elasticrun explain: those of a launch, and --json before the script. In all
// else it works like Load.
func LoadExplain(args []string, counter Counter) (c *Config, asJSON bool, err error) {
	return loadLaunch(args, counter, false, jsonFlag)
}

// LoadDoctor resolves the arguments of elasticrun doctor. It works like LoadExplain, but the script may be missing;
// then Script is empty.
func LoadDoctor(args []string, counter Counter) (c *Config, asJSON bool, err error) {
	return loadLaunch(args, counter, true, jsonFlag)
}

// loadLaunch resolves a command line with the flags of a launch and more flags, those of the command alone.
func loadLaunch(args []string, counter Counter, noScript bool, more ...Flag) (c *Config, asJSON bool, err error) {
	flags := Flags()
	p := argParser{flags: append(slices.Clip(flags), more...), hint: launchHint}
	line, err := p.split(args)
	if err != nil {
		return nil, false, err
	}
	all := len(line.options)
	line.options = slices.DeleteFunc(line.options, func(option string) bool { return option == "--json=true" })
	from, err := thisProcess(launchArgs(args, line.command), counter)
	if err != nil {
		return nil, false, err
	}
	from.noScript = noScript
	c, err = loadLine(flags, line, from)
	return c, len(line.options) < all, err
}

// launchArgs returns the arguments of a launch, which end with command, without --json and --dry-run.
func launchArgs(args, command []string) []string {
	options := slices.Clone(args[:len(args)-len(command)])
	options = slices.DeleteFunc(
		options,
		func(arg string) bool { return arg == "--json" || underscoreToDash(arg) == "--dry-run" },
	)
	return append(options, command...)
}

// thisProcess returns the surroundings of this process. args are the launch's.
func thisProcess(args []string, counter Counter) (surroundings, error) {
	self, err := os.Executable()
	if err != nil {
		return surroundings{}, fmt.Errorf("find this program: %w", err)
	}
	return surroundings{
		Counter: counter, newID: newRunID, env: os.LookupEnv, host: thisHost(),
		self: append([]string{self}, args...), dir: workingDir, secret: readSecret, certificates: openCertificates,
	}, nil
}

// workingDir returns the working directory, without links: two shells may have come to it on different paths. It is
// empty if the directory has been removed.
func workingDir() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	if followed, err := filepath.EvalSymlinks(dir); err == nil {
		return followed
	}
	return dir
}

// thisHost reads what identifies a scheduler. What cannot be read counts as missing.
func thisHost() scheduler.Host {
	name, _ := os.Hostname()
	hosts, _ := os.ReadFile("/etc/hosts")
	return scheduler.Host{Name: name, Hosts: string(hosts)}
}

// loadLine resolves a command line that has been split, with the table of a launch.
func loadLine(flags []Flag, line commandLine, from surroundings) (*Config, error) {
	if err := scriptAsValue(flags, line.options); err != nil && len(line.command) == 0 && !from.noScript {
		return nil, err
	}
	settings, file, err := gather(flags, line.options)
	if err != nil {
		return nil, err
	}
	c, err := resolve(flags, line.command, settings, from)
	if err != nil {
		return nil, err
	}
	c.Warnings = append(c.Warnings, unknownVariables(flags, os.Environ())...)
	if file != "" {
		if c.ConfigFile, err = filepath.Abs(file); err != nil {
			return nil, fmt.Errorf("find the working directory: %w", err)
		}
	}
	return c, nil
}

// readFlagsOnly parses the arguments of a subcommand that takes flags only, and merges them with the environment and,
// if the command has --config, with the config file.
func readFlagsOnly(name string, flags []Flag, args []string) (*reader, error) {
	p := argParser{flags: flags, hint: "elasticrun " + name + " --help lists them"}
	line, err := p.split(args)
	if err != nil {
		return nil, err
	}
	if len(line.command) > 0 {
		word := printable.Quote(line.command[0])
		instead := "to run a script of that name write ./" + name
		if _, takesRun := findFlag(flags, "rdzv-id"); takesRun {
			instead = "write --rdzv-id=" + word + " for the job of that run id, ./" + name + " for a script of that name"
		}
		return nil, &UsageError{Where: word, Problem: fmt.Sprintf("elasticrun %s takes flags only; %s", name, instead)}
	}
	settings, _, err := gather(flags, line.options)
	return newReader(flags, settings), err
}

// flagSet returns a table as pflag flags. All flags but the switches are text, because values are interpreted after the
// layers are merged. Parsing stops at the first argument that is no flag.
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

// gather merges command line, environment, config file and defaults. It returns one setting for each of the flags, in
// their order, and the path of the config file. A table without --config has no config file.
func gather(flags []Flag, options []string) ([]Setting, string, error) {
	l, err := newLayers(flags, options)
	if err != nil {
		return nil, "", err
	}
	named, ok := findFlag(flags, "config")
	if !ok {
		return l.settings(), "", nil
	}
	file, err := findConfigFile(l.setting(named))
	if err != nil {
		return nil, "", err
	}
	if err := l.MergeConfigMap(file.values); err != nil {
		problem := strings.Join(strings.Fields(err.Error()), " ")
		return nil, "", &UsageError{Where: printable.Quote(file.path), Problem: problem}
	}
	l.file = printable.Quote(file.path)
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
	file  string // the config file that was merged; empty if none
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

// setting returns the value that viper chose and the layer that it came from.
func (l *layers) setting(f Flag) Setting {
	s := Setting{Name: f.Name, Value: l.GetString(f.Name), Switch: f.Kind == KindBool}
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
