package workerspec

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/interpreter"
	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// New returns the specification from which the agent starts this node's workers. It adds warnings to cfg.Warnings. Its
// errors are *config.UsageError.
func New(ctx context.Context, cfg *config.Config) (agent.WorkerSpec, error) {
	python := ""
	if !cfg.NoPython {
		var source string
		var err error
		if python, source, err = interpreter.Find(os.LookupEnv); err != nil {
			return agent.WorkerSpec{}, &config.UsageError{Problem: err.Error()}
		}
		if u := interpreter.Unused(python, source, os.LookupEnv); u != nil && u.Err != nil {
			cfg.Warnings = append(cfg.Warnings, fmt.Sprintf("%s=%s has no interpreter (%v); the script runs with %s", u.Variable,
				printable.Quote(u.Root), u.Err, python))
		}
		if err := CheckScript(cfg); err != nil {
			return agent.WorkerSpec{}, err
		}
	}
	if doubt := ScriptDoubt(cfg); doubt != "" {
		cfg.Warnings = append(cfg.Warnings, doubt)
	}
	xpus, err := virtualDevices(cfg)
	if err != nil {
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
		VirtualLocalRank: cfg.VirtualLocalRank, XPUs: xpus,
	}
	if cfg.NumaBinding == "" {
		return spec, nil
	}
	if spec.CPUs, err = numaBinding(ctx, cfg); err != nil {
		return agent.WorkerSpec{}, &config.UsageError{Where: cfg.Where("numa-binding"), Problem: err.Error()}
	}
	return spec, nil
}

// CheckScript checks whether Python can read the script. It does not open the script, because opening a FIFO would take
// data away from Python. It does not check a module, or "-", which is stdin.
func CheckScript(cfg *config.Config) error {
	if cfg.Module || cfg.Script == "-" {
		return nil
	}
	err := unix.Access(cfg.Script, unix.R_OK)
	if err == nil {
		return nil
	}
	problem := "cannot be read: " + err.Error()
	if errors.Is(err, unix.ENOENT) {
		if advice := missingScript(cfg.Script, cfg.ScriptArgs); advice != "" {
			problem += "; " + advice
		}
	}
	return &config.UsageError{Where: fmt.Sprintf("script %q", cfg.Script), Problem: problem}
}

// numaBinding returns the CPUs of each worker, by local rank. It runs before any worker starts, so that a machine that
// cannot bind workers is refused early.
func numaBinding(ctx context.Context, cfg *config.Config) ([][]int, error) {
	gpus, err := topology.GPUs(ctx, topology.GPUOptions{Kind: GPUKind(cfg), NeedPCI: true})
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
		if cpus[rank], err = binder.Binding(topology.NUMAMode(cfg.NumaBinding), rank); err != nil {
			return nil, err
		}
	}
	return cpus, nil
}

// LogDirError returns the *config.UsageError for a log folder that cannot be created because of err.
func LogDirError(cfg *config.Config, err error) error {
	bad := &config.UsageError{Problem: err.Error()}
	if cfg.LogDir != "" {
		bad.Where = cfg.Where("log-dir")
	} else if tmp := os.Getenv("TMPDIR"); tmp != "" {
		bad.Where = "TMPDIR=" + tmp
	}
	return bad
}
