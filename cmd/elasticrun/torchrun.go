package main

import (
	"path/filepath"
	"slices"
)

// calledAsTorchrun says whether the program was started through a link named torchrun. torchrun has no commands, so
// through the link every word names a script.
func calledAsTorchrun(argv []string) bool {
	return len(argv) > 0 && filepath.Base(argv[0]) == "torchrun"
}

// arguments returns the arguments in argv. "torchrun status" becomes "elasticrun -- status", which runs the script
// status under any name of the program, and so on the nodes where srun starts elasticrun itself.
func arguments(argv []string) []string {
	if len(argv) == 0 {
		return nil
	}
	if calledAsTorchrun(argv) && isSubcommand(argv[1:]) {
		return slices.Insert(slices.Clone(argv[1:]), 0, "--")
	}
	return argv[1:]
}
