package config

import (
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/internal/nearest"
	"github.com/elasticrun/elasticrun/internal/printable"
)

// The prefixes of the variables that set flags: torchrun's and elasticrun's own.
const (
	petPrefix = "PET_"
	ownPrefix = "ELASTICRUN_"
)

// otherVariables are the variables of elasticrun that set no flag of a launch: for the worker processes, for the
// program itself, and for the tests.
func otherVariables() []string {
	return []string{
		SecretEnv, "ELASTICRUN_LIFELINE", "ELASTICRUN_GPU_COUNT", "ELASTICRUN_ROUND", "ELASTICRUN_DEADLINE",
		"ELASTICRUN_PREEMPT_FILE", "ELASTICRUN_CONTROL_FILE",
		"ELASTICRUN_HEARTBEAT_FILE",
		"ELASTICRUN_JOB_ATTEMPT", "ELASTICRUN_CACHE", "ELASTICRUN_SOAK", "ELASTICRUN_SEED", "ELASTICRUN_REQUIRE_ALL",
		"ELASTICRUN_WITHOUT_OFFICIAL", "ELASTICRUN_WHEEL", "ELASTICRUN_CHAOS_WITHOUT", "ELASTICRUN_CALLER_PID",
		"ELASTICRUN_CALLER_REPORT",
	}
}

// notOurs reports whether a variable with our prefix comes from elsewhere, or is read elsewhere: pkg/rpc's, the tests',
// and those that Kubernetes makes for a service whose name begins with elasticrun (ELASTICRUN_STORE_SERVICE_HOST,
// ELASTICRUN_STORE_PORT_29400_TCP).
func notOurs(name string) bool {
	rest, _ := strings.CutPrefix(name, ownPrefix)
	return strings.HasPrefix(rest, "RPC_") || strings.HasPrefix(rest, "TEST_") ||
		strings.HasPrefix(rest, "PORT") || strings.HasPrefix(rest, "SERVICE_") ||
		strings.Contains(rest, "_SERVICE_") || strings.Contains(rest, "_PORT_") || strings.HasSuffix(rest, "_PORT")
}

// unknownVariables returns a warning for each variable of environ that looks like one of torchrun's or elasticrun's and
// has no effect. flags are the table of a launch.
func unknownVariables(flags []Flag, environ []string) []string {
	known := otherVariables()
	for _, f := range flags {
		known = append(known, f.Env...)
	}
	var warnings []string
	for _, variable := range slices.Sorted(slices.Values(environ)) {
		name, _, _ := strings.Cut(variable, "=")
		prefix := petPrefix
		if strings.HasPrefix(name, ownPrefix) && !notOurs(name) {
			prefix = ownPrefix
		}
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok || slices.Contains(known, name) {
			continue
		}
		problem := "no flag has this variable, so it is ignored"
		if near := nearest.Of(rest, withPrefix(known, prefix)); near != "" {
			problem += "; the nearest is " + prefix + near
		}
		upper := strings.ToUpper(name)
		switch f, ok := findFlag(flags, strings.ToLower(rest)); {
		case slices.Contains(known, upper):
			problem = "it is ignored, because the variables are in upper case: " + upper
		case ok && len(f.Env) == 0:
			problem = "--" + f.Name + " has no variable, so it is ignored"
		case ok:
			problem = "ignored; the variable of --" + f.Name + " is " + f.Env[0]
		}
		warnings = append(warnings, printable.Quote(name)+": "+problem)
	}
	return warnings
}

// withPrefix returns the names that begin with prefix, without it.
func withPrefix(names []string, prefix string) []string {
	var rest []string
	for _, name := range names {
		if r, ok := strings.CutPrefix(name, prefix); ok {
			rest = append(rest, r)
		}
	}
	return rest
}
