package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/procs/guard"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// plan holds what must be there before anything is started.
type plan struct {
	spec    agent.WorkerSpec
	env     []string
	meeting *meeting
	logs    *workerlog.LogDir
	gpus    *topology.ComputeApps // nil where no restart waits for GPUs
	machine *evidence.Machine
}

// prepare checks the surroundings and makes what a run needs. Its errors are
// *config.UsageError where the user can do something about them; then nothing is left behind.
func prepare(ctx context.Context, cfg *config.Config, lifeline *guard.Lifeline, seen *lookout, log zerolog.Logger) (*plan, error) {
	p := &plan{}
	var err error
	if p.spec, err = workerSpec(ctx, cfg); err != nil {
		return nil, err
	}
	lookUpNode(ctx, cfg, log)
	if p.meeting, err = rendezvous(ctx, cfg, lifeline, seen, log); err != nil {
		return nil, err
	}
	if p.logs, err = workerlog.OpenLogDir(cfg.LogDir, cfg.RunID); err != nil {
		p.meeting.close(ctx, log)
		return nil, badLogDir(cfg, err)
	}
	// Warnings come last: where the input is refused, that is all there is to say.
	for _, w := range cfg.Warnings {
		log.Warn().Msg(w)
	}
	if cfg.ConfigFile != "" {
		log.Info().Str("file", cfg.ConfigFile).Msg("the config file was read")
	}
	tellInferred(cfg, log)
	p.env, p.gpus = environment(cfg, log), topology.FindComputeApps(topology.GPUOptions{})
	p.announceLogs(cfg, log)
	p.machine = evidence.NewMachine()
	return p, nil
}

// badLogDir is the error of a log folder that cannot be made.
func badLogDir(cfg *config.Config, err error) error {
	bad := &config.UsageError{Problem: err.Error()}
	if cfg.LogDir != "" {
		bad.Where = "--log-dir=" + cfg.LogDir
	}
	return bad
}

// announceLogs says where the logs go, at any log level, unless nobody asked for any,
// and links to them.
func (p *plan) announceLogs(cfg *config.Config, log zerolog.Logger) {
	if err := p.logs.LinkLatest(); err != nil {
		log.Warn().Err(err).Msg("the log folder gets no link to its latest run")
	}
	folder := p.logs.Path()
	if folder == "" || cfg.LogDir == "" && !cfg.Redirects.Any() && !cfg.Tee.Any() {
		return
	}
	// An event without a level passes every filter; readers are told that it is an information.
	log.Log().Str(zerolog.LevelFieldName, zerolog.LevelInfoValue).Str("folder", folder).Msg("logs are written")
}

// close gives back what prepare made.
func (p *plan) close(ctx context.Context, log zerolog.Logger) {
	p.meeting.close(ctx, log)
	p.machine.Close()
	if err := p.logs.Cleanup(); err != nil {
		log.Warn().Err(err).Msg("cleaning up")
	}
}

// agent wires the agent; lines takes its events.
func (p *plan) agent(t *told, cfg *config.Config, supervisor *procs.Supervisor, lines io.Writer, seen *lookout, log zerolog.Logger) (*agent.Agent, error) {
	opts := agent.Options{
		Kernel: p.machine, States: p.machine, Spec: p.spec, Rendezvous: p.meeting.handler, Launcher: launcher{supervisor}, LogFolders: p.logs, Env: p.env,
		Forward: t.forward, Hurry: t.hurry,
		ShutdownTimeout: cfg.ShutdownTimeout, RestartGrace: cfg.RestartGrace,
		ErrorExitTimeout: cfg.ErrorExitTimeout, ErrorFiles: errorFiles{}, Events: seen, Logger: log,
	}
	if p.gpus != nil {
		opts.Devices = p.gpus
	}
	if site := siteCheckOf(cfg, log); site != nil {
		opts.Fitness, opts.ForgetsRestarts = site, cfg.Rendezvous.RestartWindow > 0
	}
	if cfg.EventLogHandler == "console" {
		opts.Events = events.Sinks{seen, events.NewTorchLines(lines)}
		opts.Usage = procs.NewSampler()
	}
	return agent.New(opts)
}

// launcher lets the agent start groups of procs.
type launcher struct{ *procs.Supervisor }

func (l launcher) Start(specs []procs.Spec, over <-chan struct{}) (agent.Processes, error) {
	g, err := l.Supervisor.Start(specs, over)
	if err != nil {
		return nil, err
	}
	return g, nil
}

// errorFiles lets the agent watch files with procs.
type errorFiles struct{}

func (errorFiles) Watch(paths []string) (agent.FileWatch, error) {
	w, err := workerlog.WatchFiles(paths)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// environment is what workers get beneath torch's variables.
func environment(cfg *config.Config, log zerolog.Logger) []string {
	env, applied := agent.OMPDefault(os.Environ(), cfg.NprocPerNode)
	if applied {
		log.Warn().Msgf("%s is set to 1 for each of the %d workers, as torchrun does; set it yourself to use more cores a worker",
			agent.OMPThreadsEnv, cfg.NprocPerNode)
	}
	own := append([]string{"TORCHELASTIC_SIGNALS_TO_HANDLE=" + cfg.SignalNames}, scheduled(cfg)...)
	return with(config.WithoutSecrets(env), append(own, gpuCount(cfg)...))
}

// with returns an environment with these variables in place of those of the same names.
func with(env, variables []string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.ContainsFunc(variables, func(own string) bool { return strings.HasPrefix(own, name+"=") })
	})
	return append(env, variables...)
}

// gpuCount tells workers how many GPUs each of them sees: all that the launcher does, or its own one with a virtual local rank. They are
// told nothing where the user has said it, and where only nvidia-smi knows, which may take seconds.
func gpuCount(cfg *config.Config) []string {
	if _, set := os.LookupEnv(agent.GPUCountEnv); set {
		return nil
	}
	count, known := topology.CountGPUs(topology.GPUOptions{})
	switch {
	case cfg.VirtualLocalRank && (count > 0 || !known):
		count = 1
	case !known:
		return nil
	}
	return []string{agent.GPUCountEnv + "=" + strconv.Itoa(count)}
}

// workerSpec resolves what to execute and where.
func workerSpec(ctx context.Context, cfg *config.Config) (agent.WorkerSpec, error) {
	python := ""
	if !cfg.NoPython {
		var err error
		if python, _, err = topology.Python(os.LookupEnv); err != nil {
			return agent.WorkerSpec{}, &config.UsageError{Problem: err.Error()}
		}
		if err := checkScript(cfg); err != nil {
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

// checkScript finds out before anything is started whether Python could read the
// script. It does not open it: what comes through a FIFO is Python's. "-" is stdin.
func checkScript(cfg *config.Config) error {
	if cfg.Module || cfg.Script == "-" {
		return nil
	}
	if err := unix.Access(cfg.Script, unix.R_OK); err != nil {
		return &config.UsageError{Where: fmt.Sprintf("script %q", cfg.Script), Problem: "cannot be read: " + err.Error()}
	}
	return nil
}

// checkDevices finds out before anything is started whether every worker gets a
// device of its own.
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

// numaBinding computes the CPUs of every worker, so that a machine on which that
// cannot be done is refused before anything is started.
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
