package workerspec

import (
	"context"

	"github.com/elasticrun/elasticrun/internal/topology"
)

// Machine implements config.Counter for this machine.
type Machine struct{}

// CPUs implements config.Counter.
func (Machine) CPUs() (int, error) { return topology.CPUs(), nil }

// GPUs implements config.Counter.
func (Machine) GPUs() (int, error) { return countGPUs(topology.CUDAGPU) }

// XPUs implements config.Counter.
func (Machine) XPUs() (int, error) { return countGPUs(topology.XPU) }

// Accelerators implements config.Counter.
func (Machine) Accelerators() (int, error) { return countGPUs(topology.AnyGPU) }

func countGPUs(kind topology.Kind) (int, error) {
	gpus, err := topology.GPUs(context.Background(), topology.GPUOptions{Kind: kind})
	return len(gpus), err
}

// UnknownMachine implements config.Counter for nodes whose hardware cannot be read from here. It counts one device of
// each kind.
type UnknownMachine struct{}

// CPUs implements config.Counter.
func (UnknownMachine) CPUs() (int, error) { return 1, nil }

// GPUs implements config.Counter.
func (UnknownMachine) GPUs() (int, error) { return 1, nil }

// XPUs implements config.Counter.
func (UnknownMachine) XPUs() (int, error) { return 1, nil }

// Accelerators implements config.Counter.
func (UnknownMachine) Accelerators() (int, error) { return 1, nil }
