// Package config turns the command line, the environment and the config file into one resolved [Config], and into the
// configurations of the subcommands. It does not check whether the script exists, and it does not choose an
// interpreter.
//
// # Data flow
//
//	Flags (table.go) ──▶ pflag flags, environment names, config keys, value parsers, package help
//
//	argv ─args.go─▶ canonical flags + script ─┐
//	environment ──────────────────────────────┼─load.go (viper)─▶ []Setting ─resolve.go─▶ Config
//	elasticrun.yaml ─configfile.go────────────┘
//
// A flag overrides the environment, which overrides the config file, which overrides the scheduler's value, which
// overrides the default. Every [Setting] keeps its [Source], so that an error names the flag, variable or key that
// the user wrote.
//
// One table per command defines its flags. The fields of a configuration name their flags in struct tags, and the
// tables have the parsers ([reader.decode]); only values that depend on several flags have code of their own.
//
// # Files
//
//   - Where a value comes from: flag.go (an entry of a table), args.go, unknownenv.go, configfile.go and yaml.go,
//     load.go (the layers), infer.go (the scheduler), setting.go (a value with its source, and the reader of typed
//     values), values.go (parsers), mistakes.go (advice about common mistakes).
//   - What a launch's settings mean: table.go, config.go and resolve.go; by groups of flags size.go, output.go,
//     lifecycle.go, policy.go, preemption.go, hangs.go and torchelastic.go.
//   - Where nodes meet: rendezvous.go, resolverendezvous.go, endpoints.go, local.go and rdzvconf.go. Who is admitted:
//     admission.go, secret.go, certificates.go and users.go.
//   - Subcommands: subcommand.go has the list, and each has a file with its flags and configuration. target.go finds
//     the job that status, stacks and stop ask for. completion.go completes all command lines.
//
// # Inputs and concurrency
//
// load.go and target.go take the environment, configfile.go (with package safefile) reads the config file, secret.go
// and certificates.go read files, and resolve.go draws run ids. Functions below them get all of that as surroundings.
// The package keeps no state, and its functions may be called concurrently.
package config
