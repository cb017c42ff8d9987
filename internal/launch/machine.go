package launch

import (
	"context"

	"github.com/elasticrun/elasticrun/internal/topology"
)

// Machine implements config.Counter for this machine.
type Machine struct{}

// CPUs implements config.Counter.
func (Machine) CPUs() (int, error) { return topology.CPUs(), nil }

// GPUs implements config.Counter.
func (Machine) GPUs() (int, error) {
	gpus, err := topology.GPUs(context.Background(), topology.GPUOptions{})
	return len(gpus), err
}

// UnknownMachine implements config.Counter for nodes whose hardware cannot be read from here. It counts one of each.
type UnknownMachine struct{}

// CPUs implements config.Counter.
func (UnknownMachine) CPUs() (int, error) { return 1, nil }

// GPUs implements config.Counter.
func (UnknownMachine) GPUs() (int, error) { return 1, nil }
