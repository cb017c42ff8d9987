package launch

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// WorkerSpec returns what the agent needs to start this node's workers.
func WorkerSpec(ctx context.Context, cfg *config.Config) (agent.WorkerSpec, error) {
	python := ""
	if !cfg.NoPython {
		var err error
		if python, _, err = topology.Python(os.LookupEnv); err != nil {
			return agent.WorkerSpec{}, &config.UsageError{Problem: err.Error()}
		}
		if err := CheckScript(cfg); err != nil {
			return agent.WorkerSpec{}, err
		}
	}
	if err := checkDevices(cfg); err != nil {
		return agent.WorkerSpec{}, err
	}
	program, args := cfg.Command(python)
	spec := agent.WorkerSpec{
		Role: cfg.Role, LocalWorldSize: cfg.NprocPerNode, Entrypoint: program, Args: args,
		MaxRestarts: cfg.MaxRestarts, MasterAddr: cfg.Rendezvous.MasterAddr, MasterPort: cfg.Rendezvous.MasterPort,
		Output: workerlog.OutputRules{
			Redirects: cfg.Redirects, Tee: cfg.Tee, Shown: cfg.LocalRanksFilter,
			Rotation:      workerlog.Rotation{MaxSize: cfg.LogMaxSize, MaxFiles: cfg.LogMaxFiles},
			StdoutFilters: cfg.DuplicateStdoutFilters, StderrFilters: cfg.DuplicateStderrFilters,
		},
		PrefixTemplate:   cfg.LogLinePrefix,
		VirtualLocalRank: cfg.VirtualLocalRank,
	}
	if cfg.NumaBinding == "" {
		return spec, nil
	}
	var err error
	if spec.CPUs, err = numaBinding(ctx, cfg); err != nil {
		return agent.WorkerSpec{}, &config.UsageError{Where: "--numa-binding=" + cfg.NumaBinding, Problem: err.Error()}
	}
	return spec, nil
}

// CheckScript checks whether Python could read the script. It does not open the script, because opening a FIFO would
// take data away from Python. A module and "-", which is stdin, are not checked.
func CheckScript(cfg *config.Config) error {
	if cfg.Module || cfg.Script == "-" {
		return nil
	}
	if err := unix.Access(cfg.Script, unix.R_OK); err != nil {
		return &config.UsageError{Where: fmt.Sprintf("script %q", cfg.Script), Problem: "cannot be read: " + err.Error()}
	}
	return nil
}

// checkDevices checks whether --virtual-local-rank can give every worker a device of its own.
func checkDevices(cfg *config.Config) error {
	list, set := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	if !cfg.VirtualLocalRank || !set {
		return nil
	}
	devices := len(agent.SplitDevices(list))
	if devices >= cfg.NprocPerNode {
		return nil
	}
	return &config.UsageError{Where: "--virtual-local-rank", Problem: fmt.Sprintf(
		"CUDA_VISIBLE_DEVICES=%q lists %d devices for %d workers: start fewer workers or list more devices",
		list, devices, cfg.NprocPerNode)}
}

// numaBinding returns the CPUs of every worker. It runs before anything is started, so that a machine that cannot bind
// workers is refused early.
func numaBinding(ctx context.Context, cfg *config.Config) ([][]int, error) {
	mode, err := topology.ParseNUMAMode(cfg.NumaBinding)
	if err != nil {
		return nil, err
	}
	gpus, err := topology.GPUs(ctx, topology.GPUOptions{NeedPCI: true})
	if err != nil {
		return nil, err
	}
	affinity, err := topology.Affinity()
	if err != nil {
		return nil, err
	}
	binder := topology.Binder{Sys: os.DirFS("/sys"), GPUs: gpus, Affinity: affinity}
	cpus := make([][]int, cfg.NprocPerNode)
	for rank := range cpus {
		if cpus[rank], err = binder.Binding(mode, rank); err != nil {
			return nil, err
		}
	}
	return cpus, nil
}

// LogDirError returns the *config.UsageError for a log folder that cannot be created because of err.
func LogDirError(cfg *config.Config, err error) error {
	bad := &config.UsageError{Problem: err.Error()}
	if cfg.LogDir != "" {
		bad.Where = "--log-dir=" + cfg.LogDir
	}
	return bad
}
