package config

import (
	"fmt"

	"github.com/elasticrun/elasticrun/internal/plural"
)

// readMultiples reads what divides the number of nodes and of workers, and narrows the range of nodes to what is
// possible. All nodes must have as many workers, so a divisor of the workers is one of the nodes.
func (c *Config) readMultiples(r *reader) {
	const ofNodes, ofWorkers = "nnodes-multiple", "world-size-multiple"
	nodes, workers := value[int](r, ofNodes), value[int](r, ofWorkers)
	if r.err != nil {
		return
	}
	c.NodesMultiple = lcm(nodes, workers/gcd(workers, c.NprocPerNode))
	low := (c.MinNodes + c.NodesMultiple - 1) / c.NodesMultiple * c.NodesMultiple
	high := c.MaxNodes / c.NodesMultiple * c.NodesMultiple
	if low > high {
		name := ofNodes
		if workers > 1 {
			name = ofWorkers
		}
		allowed := fmt.Sprintf("the number of nodes must be a multiple of %d", c.NodesMultiple)
		if workers > 1 {
			allowed += fmt.Sprintf(" (%s on each)", plural.Of(c.NprocPerNode, "worker"))
		}
		r.fail(name, fmt.Sprintf("%s, and --nnodes allows %d to %d", allowed, c.MinNodes, c.MaxNodes))
		return
	}
	c.MinNodes, c.MaxNodes = low, high
}

// gcd is the greatest common divisor of two numbers above 0.
func gcd(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// lcm is the least common multiple of two numbers above 0.
func lcm(a, b int) int { return a / gcd(a, b) * b }
