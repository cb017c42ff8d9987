package config

import (
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/internal/nearest"
	"github.com/elasticrun/elasticrun/internal/printable"
)

// petPrefix is how torchrun's variables begin.
const petPrefix = "PET_"

// unknownVariables returns a warning for each variable of environ that looks like one of torchrun's and has no effect.
func unknownVariables(environ []string) []string {
	known := []string{strings.TrimPrefix(SecretEnv, petPrefix)}
	for _, f := range Flags() {
		for _, name := range f.Env {
			if pet, ok := strings.CutPrefix(name, petPrefix); ok {
				known = append(known, pet)
			}
		}
	}
	var warnings []string
	for _, variable := range slices.Sorted(slices.Values(environ)) {
		name, _, _ := strings.Cut(variable, "=")
		pet, ok := strings.CutPrefix(name, petPrefix)
		if !ok || slices.Contains(known, pet) {
			continue
		}
		problem := "no flag has this variable, so it is ignored"
		if near := nearest.Of(pet, known); near != "" {
			problem += "; the nearest is " + petPrefix + near
		}
		upper := strings.ToUpper(pet)
		if f, ok := findFlag(Flags(), strings.ToLower(pet)); ok && len(f.Env) == 0 {
			problem = "--" + f.Name + " has no variable, so it is ignored"
		} else if slices.Contains(known, upper) {
			problem = "it is ignored, because torchrun's variables are in upper case: " + petPrefix + upper
		}
		warnings = append(warnings, printable.Quote(name)+": "+problem)
	}
	return warnings
}
