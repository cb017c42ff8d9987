package config

import (
	"strconv"
	"strings"
)

// lookup returns the value of a variable, and whether it is set.
type lookup func(name string) (string, bool)

// number returns a variable that holds a whole number, 0 or more. What a scheduler sets and cannot be read so
// is as good as not set: it was not written by the user.
func (env lookup) number(name string) (int, bool) {
	text, _ := env(name)
	n, err := strconv.Atoi(strings.TrimSpace(text))
	return n, err == nil && n >= 0 && n <= maxNodes
}

// first returns the first of the variables that holds a number, and its name.
func (env lookup) first(names ...string) (n int, name string) {
	for _, name := range names {
		if n, ok := env.number(name); ok {
			return n, name
		}
	}
	return -1, ""
}

// nodeHint returns the rank that a scheduler gives this node, and the variable that says so; -1 if none
// does.
func (env lookup) nodeHint() (rank int, variable string) {
	return env.first("SLURM_NODEID", "JOB_COMPLETION_INDEX")
}

// expectedNodes returns how many nodes will come to a job of minimum to maximum nodes, or 0 where nobody knows. Slurm's
// allocation counts only inside of a step, which runs on all of it; a batch script is on one node of it alone, and
// knows nothing of who is started on the others, and how.
func (env lookup) expectedNodes(minimum, maximum int) int {
	if minimum == maximum {
		return maximum
	}
	nodes, _ := env.first("SLURM_STEP_NUM_NODES")
	if _, inStep := env.number("SLURM_STEP_ID"); nodes < 1 && inStep {
		nodes, _ = env.first("SLURM_JOB_NUM_NODES", "SLURM_NNODES")
	}
	if nodes < 1 {
		return 0
	}
	return min(max(nodes, minimum), maximum)
}
