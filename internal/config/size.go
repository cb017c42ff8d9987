package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/elasticrun/elasticrun/internal/plural"
)

// readMultiples reads --nnodes-multiple and --world-size-multiple, and narrows the range of nodes to their multiples.
// All nodes have the same number of workers, so a multiple of workers implies a multiple of nodes.
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

// nodeRange is a number of nodes from low to high.
type nodeRange struct{ low, high int }

// parseNodes reads N or MIN:MAX.
func parseNodes(s string) (nodeRange, error) {
	low, high, err := parseRange(s, ":", between(1, maxNodes))
	switch {
	case err != nil && strings.LastIndexByte(s, '-') > 0:
		return nodeRange{}, fmt.Errorf("must be N or MIN:MAX, with a colon, each a whole number between 1 and %d", maxNodes)
	case err != nil:
		return nodeRange{}, fmt.Errorf("must be N or MIN:MAX, each a whole number between 1 and %d", maxNodes)
	case low > high:
		return nodeRange{}, fmt.Errorf("MIN must not be above MAX: did you mean %d:%d?", high, low)
	}
	return nodeRange{low, high}, nil
}

// Counter counts the devices of this machine for --nproc-per-node.
type Counter interface {
	// Count returns the number of devices of a kind, which is a word that the flag accepts:
	//
	//	cpu   the CPUs that this process may use
	//	gpu   the GPUs that torch.cuda would see in workers, NVIDIA's or AMD's
	//	xpu   the GPUs that torch.xpu would see in workers, Intel's
	//	auto  the devices that torch.accelerator would use in workers, without integrated GPUs of AMD and Intel
	Count(kind string) (int, error)
}

// readProcs turns --nproc-per-node into a number of workers.
func readProcs(r *reader, counter Counter) int {
	const name = "nproc-per-node"
	return read(r, name, func(s string) (int, error) {
		switch kind := strings.TrimSpace(s); kind {
		case "cpu":
			return countCPUs(counter)
		case "gpu", "xpu":
			return countGPUs(counter, kind)
		case "auto":
			n, err := counter.Count(kind)
			if err != nil {
				r.warn(name, "cannot count the GPUs, so the number of CPUs is used: "+err.Error())
			}
			if err == nil && n > 0 {
				return n, nil
			}
			return countCPUs(counter)
		}
		n, err := between(1, maxProcPerNode)(s)
		if err != nil {
			return 0, fmt.Errorf(
				"must be auto, cpu, gpu, xpu or a number between 1 and %d; for any other device give the number",
				maxProcPerNode,
			)
		}
		return n, nil
	})
}

// countGPUs counts the devices of torch.cuda (gpu) or torch.xpu (xpu).
func countGPUs(counter Counter, kind string) (int, error) {
	other, makers := "xpu", "NVIDIA or AMD"
	if kind == "xpu" {
		other, makers = "gpu", "Intel"
	}
	n, err := counter.Count(kind)
	switch {
	case err != nil:
		return 0, fmt.Errorf("cannot count the GPUs (%w): give a number", err)
	case n > 0:
		return n, nil
	}
	if n, err := counter.Count(other); err == nil && n > 0 {
		return 0, fmt.Errorf("there is no GPU of %s on this machine: give %s for the GPUs that there are, or a number",
			makers, other)
	}
	return 0, errors.New("there is no GPU on this machine: give a number, or cpu")
}

func countCPUs(counter Counter) (int, error) {
	n, err := counter.Count("cpu")
	if err != nil {
		return 0, fmt.Errorf("cannot count the CPUs (%w): give a number", err)
	}
	return max(n, 1), nil
}
