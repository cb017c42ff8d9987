package workerspec

import (
	"context"

	"github.com/elasticrun/elasticrun/internal/topology"
)

// Machine implements config.Counter for this machine.
type Machine struct{}

// Count implements config.Counter.
func (Machine) Count(kind string) (int, error) {
	if kind == "cpu" {
		return topology.CPUs(), nil
	}
	gpus, err := topology.GPUs(context.Background(), topology.GPUOptions{Kind: kindOf(kind)})
	return len(gpus), err
}

// UnknownMachine implements config.Counter for nodes whose hardware cannot be read from here. It counts one device of
// each kind.
type UnknownMachine struct{}

// Count implements config.Counter.
func (UnknownMachine) Count(string) (int, error) { return 1, nil }
