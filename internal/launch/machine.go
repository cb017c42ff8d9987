package launch

import (
	"context"

	"github.com/elasticrun/elasticrun/internal/topology"
)

// Machine answers config's questions about the hardware.
type Machine struct{}

func (Machine) CPUs() (int, error) { return topology.CPUs(), nil }

func (Machine) GPUs() (int, error) {
	gpus, err := topology.GPUs(context.Background(), topology.GPUOptions{})
	return len(gpus), err
}

// UnknownMachine answers config's questions about the hardware of nodes that cannot be asked from here.
type UnknownMachine struct{}

func (UnknownMachine) CPUs() (int, error) { return 1, nil }
func (UnknownMachine) GPUs() (int, error) { return 1, nil }
