// Package config turns the command line, the environment and the config file
// into one resolved [Config].
//
// # Data flow
//
//	Flags (table.go) ──▶ pflag flags, environment names, config keys, Help, Reference
//
//	argv ─args.go─▶ canonical flags + script ─┐
//	environment ──────────────────────────────┼─load.go (viper)─▶ []Setting ─resolve.go─▶ Config
//	elasticrun.yaml ──────────────────────────┘
//
// A flag beats the environment, which beats the config file, which beats the
// default. Every [Setting] remembers where its value came from, so that an error
// names the flag, the variable or the file's key that the user wrote.
//
// load.go alone imports viper and reads the environment, configfile.go and exposure.go the config file and who could have
// written it, secret.go the files with secrets; the rest is pure. [Load] keeps no state and may be called from any goroutine. Whether
// the script exists and which interpreter runs it is not decided here.
package config
