package main

import (
	"context"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/backends"
	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/doctor"
	"github.com/elasticrun/elasticrun/internal/filetimer"
	"github.com/elasticrun/elasticrun/internal/jobs"
	"github.com/elasticrun/elasticrun/internal/liveness"
	"github.com/elasticrun/elasticrun/internal/logging"
	"github.com/elasticrun/elasticrun/internal/status"
	"github.com/elasticrun/elasticrun/internal/telemetry"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/internal/workerdir"
	"github.com/elasticrun/elasticrun/internal/workerspec"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/procs/guard"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// plan holds what must exist before the first worker is started.
type plan struct {
	spec       agent.WorkerSpec
	env        []string
	rendezvous *backends.Rendezvous
	logs       *workerlog.LogDir
	gpus       *topology.ComputeApps // nil if no restart waits for GPUs
	machine    *evidence.Machine
	liveness   *liveness.Watcher
	workerDir  *workerdir.Dir    // nil if there is none
	timers     *filetimer.Server // nil if workers have no timers
}

// prepare checks the machine and makes what a run needs. Its errors are *config.UsageError where the user can correct
// them. After an error nothing is left behind.
func (l *launcher) prepare(ctx context.Context) (*plan, error) {
	cfg, log, p := l.cfg, l.log, &plan{}
	var err error
	if p.spec, err = workerspec.New(ctx, cfg); err != nil {
		return nil, err
	}
	if err = workerspec.CheckEndpoint(ctx, cfg); err != nil {
		return nil, err
	}
	workerspec.ResolveNode(ctx, cfg, log)
	p.rendezvous, err = backends.Open(ctx, cfg, backends.Options{
		Version: version, Lifeline: l.lifeline, Status: l.telemetry.Brief, Stacks: l.telemetry.Stacks,
		Examine: l.telemetry.Examine, HangFound: l.telemetry.HangFound,
		Waiting:      l.telemetry.Waits,
		StoreChanged: func(s *elastic.StoreState) { l.telemetry.StoreChanged(status.StoreOf(s)) }, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	if p.logs, err = workerlog.OpenLogDir(cfg.LogDir, cfg.RunID); err != nil {
		p.rendezvous.Close(ctx)
		return nil, workerspec.LogDirError(cfg, err)
	}
	// Warnings come last: a refused command line gets its one error and nothing else.
	for _, w := range cfg.Warnings {
		log.Warn().Msg(w)
	}
	if cfg.ConfigFile != "" {
		log.Info().Str("file", cfg.ConfigFile).Msg("the config file was read")
	}
	logInferred(cfg, log)
	p.env, p.gpus = workerspec.Environment(cfg, log), topology.FindComputeApps(topology.GPUOptions{})
	p.openTimers(cfg, &l.signals.suspension, log)
	p.announceLogs(cfg, log)
	p.machine = evidence.NewMachine()
	p.liveness = liveness.New(liveness.Options{
		Timeout: cfg.HangTimeout.After, Off: cfg.HangTimeout == config.HangTimeout{},
		Blind:     !procs.ProcIsOurs(),
		Suspended: l.signals.suspension.Suspended,
		Logger:    log,
	})
	if p.workerDir, err = workerdir.Open(); err != nil {
		log.Debug().Err(err).Msg("workers get no " + agent.HeartbeatEnv)
	}
	return p, nil
}

// logInferred logs the settings that were found in the environment, and their sources.
func logInferred(cfg *config.Config, log zerolog.Logger) {
	if len(cfg.Inferred) == 0 {
		return
	}
	line := log.Info()
	for _, s := range cfg.Inferred {
		line = line.Str(s.Name, s.Value+" by "+s.Source.String())
	}
	line.Msg("inferred from " + cfg.Scheduler)
}

// announceLogs links the log folder's latest run. If the user asked for log files, it logs their folder, at any level.
func (p *plan) announceLogs(cfg *config.Config, log zerolog.Logger) {
	if err := p.logs.LinkLatest(); err != nil {
		log.Warn().Err(err).Msg("the log folder gets no link to its latest run")
	}
	folder := p.logs.Path()
	if folder == "" || !cfg.KeepsLogs() {
		return
	}
	logging.Always(log).Str("folder", folder).Msg("logs are written")
}

// close releases what prepare made.
func (p *plan) close(ctx context.Context, log zerolog.Logger) {
	p.rendezvous.Close(ctx)
	p.machine.Close()
	if p.workerDir != nil {
		p.workerDir.Close()
	}
	if p.timers != nil {
		p.timers.Close()
	}
	if err := p.logs.Cleanup(); err != nil {
		log.Warn().Err(err).Msg("cleaning up")
	}
}

// job returns how other commands of this machine find and close the job.
func (l *launcher) job(p *plan) telemetry.Job {
	pid := os.Getpid()
	if guard.Supported() {
		pid = os.Getppid()
	}
	var endpoints []string
	if l.cfg.Rendezvous.Local {
		endpoints = []string{config.LocalEndpoint}
	}
	if l.cfg.MaxNodes > 1 {
		for _, e := range l.cfg.Rendezvous.Endpoints {
			endpoints = append(endpoints, e.String())
		}
	}
	dir, _ := os.Getwd() // only elasticrun stop without a run id needs it
	var ask status.AskStacks
	if h, ok := p.rendezvous.Handler.(interface {
		AskStacks(ctx context.Context, round, rank int) *elastic.Snapshot
	}); ok {
		ask = h.AskStacks
	}
	return telemetry.Job{
		Ask:    ask,
		Secret: l.cfg.Rendezvous.Secret,
		Launcher: jobs.Launcher{
			RunID: l.cfg.RunID, Script: l.cfg.Script, Backend: l.cfg.Rendezvous.Backend, Endpoint: strings.Join(endpoints, ","),
			SchedulerJob: l.cfg.SchedulerJob, Dir: dir, LogDir: p.logs.Path(), PID: pid, Started: time.Now(),
		},
		Close: p.rendezvous.CloseRun,
		Used:  p.rendezvous.Handler.Used,
	}
}

// agent makes the agent.
func (l *launcher) agent(p *plan, supervisor *procs.Supervisor) (*agent.Agent, error) {
	cfg := l.cfg
	opts := agent.Options{
		Spec: p.spec, Env: p.env, Rendezvous: p.rendezvous.Handler,
		Launcher: agent.ProcessLauncher{Supervisor: supervisor}, LogFolders: p.logs,
		Kernel: p.machine, ErrorFiles: errorFiles{}, Liveness: signsOfLife{p.liveness}, Events: l.telemetry,
		Stacks: l.telemetry, Logger: l.log,
		Forward: l.signals.forward, KillNow: l.signals.urgent,
		Preempt: l.signals.preemptions.requests, PreemptGrace: cfg.PreemptGrace, PreemptNotice: cfg.PreemptNotice,
		Deadline:        cfg.Deadline,
		ShutdownTimeout: cfg.ShutdownTimeout, RestartGrace: cfg.RestartGrace, ErrorExitTimeout: cfg.ErrorExitTimeout,
		ExitBarrierTimeout: cfg.ExitBarrierTimeout, ProgressAfter: progressAfter,
		UninterruptibleTimeout: cfg.TorchAgent.UninterruptibleTimeout,
	}
	if cfg.ExitBarrierTimeout == 0 {
		opts.ExitBarrierTimeout = -1 // the agent's 0 is the default
	}
	if p.timers != nil {
		opts.Timers = timers{p.timers}
	}
	if p.gpus != nil {
		opts.Devices = p.gpus
	}
	if p.workerDir != nil {
		opts.WorkerDir = p.workerDir.Path()
	}
	if cfg.StepPattern != "" {
		opts.StepPattern = regexp.MustCompile(cfg.StepPattern) // the configuration has checked it
	}
	if check := doctor.NewSiteCheck(cfg, l.log); check != nil {
		opts.Fitness, opts.RestartWindow = check, cfg.Rendezvous.RestartWindow > 0
	}
	if cfg.EventLogHandler == "console" {
		opts.Usage = procs.NewSampler()
	}
	return agent.New(opts)
}

// signsOfLife adapts liveness.Watcher to the agent.
type signsOfLife struct{ *liveness.Watcher }

// Run implements agent.Liveness.
func (l signsOfLife) Run(ctx context.Context, watched []agent.WatchedWorker, changed func(*rdzv.Quiet)) {
	workers := make([]liveness.Worker, len(watched))
	for i, w := range watched {
		workers[i] = liveness.Worker(w)
	}
	l.Watcher.Run(ctx, workers, func(q *liveness.Quiet) { changed((*rdzv.Quiet)(q)) })
}

// errorFiles adapts workerlog.WatchFiles to the agent.
type errorFiles struct{}

// Watch watches paths.
func (errorFiles) Watch(paths []string) (agent.FileWatch, error) {
	w, err := workerlog.WatchFiles(paths)
	if err != nil {
		return nil, err
	}
	return w, nil
}
