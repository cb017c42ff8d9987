package config

import "slices"

// ownFlags are those that elasticrun explain and elasticrun doctor have beside the launch's.
func ownFlags(group string) []Flag {
	help, _ := findFlag(Flags(), "help")
	help.Group = group
	return []Flag{
		{Name: "json", Kind: KindBool, Help: "Say it as JSON.", Group: group, Env: []string{}, CommandLineOnly: true},
		help,
	}
}

// ExplainFlags returns the flags that elasticrun explain has beside the launch's.
func ExplainFlags() []Flag { return ownFlags(groupExplain) }

// DoctorFlags returns the flags that elasticrun doctor has beside the launch's.
func DoctorFlags() []Flag { return ownFlags(groupDoctor) }

// LoadExplain resolves the arguments of elasticrun explain: the launch's whole command line, and --json before the script. It is otherwise as Load.
func LoadExplain(args []string, counter Counter) (c *Config, asJSON bool, err error) {
	return loadBeside(args, counter, false)
}

// LoadDoctor resolves the arguments of elasticrun doctor: as LoadExplain, but Script is empty where none is given.
func LoadDoctor(args []string, counter Counter) (c *Config, asJSON bool, err error) {
	return loadBeside(args, counter, true)
}

func loadBeside(args []string, counter Counter, noScript bool) (*Config, bool, error) {
	own := ownFlags("")[0]
	p := argParser{flags: append(Flags(), own), hint: "elasticrun --help lists them, and the script's own flags go behind the script"}
	line, err := p.split(args)
	if err != nil {
		return nil, false, err
	}
	all := len(line.options)
	line.options = slices.DeleteFunc(line.options, func(option string) bool { return option == "--json=true" })
	from, err := here(asked(args, line.command), counter)
	if err != nil {
		return nil, false, err
	}
	from.noScript = noScript
	c, err := loadLine(line, from)
	return c, len(line.options) < all, err
}
