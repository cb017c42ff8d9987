package rpc

import (
	"context"
	"fmt"

	"github.com/elasticrun/elasticrun/internal/topology"
)

// countGPUs sets the device count of the options if neither the program nor elasticrun has set it, as under torchrun.
// It runs nvidia-smi, which can take seconds, only if nothing else knows the number and this worker has maps or devices
// of its own. Without these, an unknown number counts as 0.
func (c *Config) countGPUs(ctx context.Context) error {
	options, ok := c.Options.(*GRPCOptions)
	if !ok || options == nil || options.DeviceCount != 0 {
		return nil
	}
	if set, _ := c.Lookup(envGPUCount); set != "" {
		return nil
	}
	search := topology.GPUOptions{Kind: topology.CUDAGPU, Env: c.Lookup}
	if len(options.DeviceMaps)+len(options.Devices) == 0 {
		gpus, _ := topology.KnownGPUs(search)
		options.DeviceCount = len(gpus)
		return nil
	}
	gpus, err := topology.GPUs(ctx, search)
	if err != nil {
		return fmt.Errorf("count the GPUs for DeviceMaps and Devices: %w; or set DeviceCount or %s", err, envGPUCount)
	}
	options.DeviceCount = len(gpus)
	return nil
}
