package workerspec

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/agent"
)

// GPUKind returns the kind of GPUs that workers use: the kind that --nproc-per-node names, or any kind.
func GPUKind(cfg *config.Config) topology.Kind {
	for _, s := range cfg.Settings {
		if s.Name == "nproc-per-node" {
			return kindOf(strings.TrimSpace(s.Value))
		}
	}
	return topology.AnyGPU
}

// kindOf returns the kind of GPUs that a value of --nproc-per-node names, or any kind.
func kindOf(value string) topology.Kind {
	return map[string]topology.Kind{"gpu": topology.CUDAGPU, "xpu": topology.XPU}[value]
}

// virtualDevices checks whether --virtual-local-rank can give every worker a device of its own. On a machine with Intel
// GPUs it returns the devices by local rank. Workers beyond the last GPU get a number that no GPU has, as with CUDA.
func virtualDevices(cfg *config.Config) (xpus []string, err error) {
	if !cfg.VirtualLocalRank {
		return nil, nil
	}
	refuse := func(problem string) error {
		return &config.UsageError{Where: cfg.Where("virtual-local-rank"), Problem: problem}
	}
	gpus, err := topology.KnownGPUs(topology.GPUOptions{Kind: GPUKind(cfg)})
	if bad := (*topology.VariableError)(nil); errors.As(err, &bad) {
		return nil, refuse(bad.Error())
	}
	const short = "%s=%q lists %d devices for %d workers: start fewer workers or list more devices"
	if len(gpus) == 0 || gpus[0].Vendor != topology.Intel {
		name, list, set := agent.VisibleDevices(os.Environ())
		if set && len(list) < cfg.NprocPerNode {
			return nil, refuse(fmt.Sprintf(short, name, os.Getenv(name), len(list), cfg.NprocPerNode))
		}
		return nil, nil
	}
	for _, name := range []string{"ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"} {
		if value := os.Getenv(name); value != "" && len(gpus) < cfg.NprocPerNode {
			return nil, refuse(fmt.Sprintf(short, name, value, len(gpus), cfg.NprocPerNode))
		}
	}
	for rank := range cfg.NprocPerNode {
		if rank < len(gpus) {
			xpus = append(xpus, gpus[rank].ID)
		} else {
			xpus = append(xpus, strconv.Itoa(rank))
		}
	}
	return xpus, nil
}
