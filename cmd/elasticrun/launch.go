package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/doctor"
	"github.com/elasticrun/elasticrun/internal/exitcode"
	"github.com/elasticrun/elasticrun/internal/listen"
	"github.com/elasticrun/elasticrun/internal/logging"
	"github.com/elasticrun/elasticrun/internal/records"
	"github.com/elasticrun/elasticrun/internal/telemetry"
	"github.com/elasticrun/elasticrun/internal/workerspec"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/procs/guard"
	"github.com/elasticrun/elasticrun/pkg/report"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// launcher is one launch: its configuration and what connects it to the outside.
type launcher struct {
	cfg       *config.Config
	lifeline  *guard.Lifeline
	signals   *signalHandler
	console   *workerlog.Console
	telemetry *telemetry.Telemetry
	log       zerolog.Logger
}

// runLaunch runs a job and returns the launcher's exit code.
func runLaunch(args []string, lifeline *guard.Lifeline) int {
	cfg, err := config.Load(args, workerspec.Machine{})
	if err != nil {
		return failUsage(err)
	}
	if cfg.DryRun {
		return explainLaunch(cfg, false, os.Stdout)
	}
	files, err := records.Open(cfg, version, time.Now(), report.CheckFile)
	if err != nil {
		return failUsage(err)
	}
	ctx, signals := handleSignals(cfg.Signals, urgentSignals(), cfg.PreemptSignals, cfg.ShutdownTimeout, lifeline)
	defer signals.stop()
	console := workerlog.NewConsole(os.Stdout, os.Stderr)
	defer func() { _ = console.Close() }()
	var warnings logging.Warnings
	log, lines := logging.New(cfg.LogFormat, cfg.LogLevel, console.Stderr(), &warnings)

	l := &launcher{cfg: cfg, lifeline: lifeline, signals: signals, console: console, log: log}
	var result agent.RunResult
	var rep report.Report
	l.telemetry, err = telemetry.Open(ctx, cfg, version, files.Host, log, lines)
	if err == nil {
		result, rep, err = l.run(ctx)
	}
	if errors.As(err, new(*procs.StuckError)) {
		lifeline.ReportStuck()
	}
	end := conclude(result, listen.Explain(cfg, err))
	if end.reason == exitcode.ReasonPreempted {
		end.code = cfg.PreemptExitCode
	}
	if lost := reportLostOutput(console, log); lost != nil && end.reason == "" {
		end = ending{code: exitOutput, reason: exitcode.ReasonOutput, err: fmt.Errorf("show the job's output: %w", lost)}
	}
	end = end.mapped(cfg.ExitCodeMap)
	rep.WarningCount, rep.Warnings = warnings.List()
	if s := signals.sender.Load(); s != nil {
		rep.SignaledBy = &report.Sender{PID: s.PID, UID: s.UID, User: s.User, Command: s.Command}
	}
	rep = files.Complete(rep, end.record())
	files.Write(rep, end.record(), log)
	l.telemetry.Close(ctx, rep)
	_ = lines.Close()
	console.Finish(rep.Text()+end.text(), consoleTimeout)
	return end.code
}

// showStacksOnRequest shows the stacks of this node's workers whenever Ctrl-\ is typed, until the function that it
// returns is called.
func (l *launcher) showStacksOnRequest(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-l.signals.showStacks:
				l.telemetry.ShowNow(ctx, "the workers of this node now; Ctrl-C stops the job:")
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// consoleTimeout is how long the launcher waits at its end for a console that has no room.
const consoleTimeout = 2 * time.Second

// reportLostOutput logs what the console could not show for want of room. It returns an error if the loss could not be
// shown on the console either.
func reportLostOutput(console *workerlog.Console, log zerolog.Logger) error {
	lost := console.Lost()
	if len(lost) == 0 {
		return nil
	}
	err := console.ReportLost(consoleTimeout)
	for _, loss := range lost {
		log.Warn().Str("stream", loss.Stream).Int64("bytes", loss.Bytes).Err(loss.Err).
			Msg("output was lost: the console had no room")
	}
	return err
}

// run wires the packages together and runs the agent. The report holds what the agent knows. When run returns, no
// process of the job is left, and all of its output has been written.
func (l *launcher) run(ctx context.Context) (agent.RunResult, report.Report, error) {
	fail := func(err error) (agent.RunResult, report.Report, error) {
		return agent.RunResult{}, report.Report{}, err
	}
	p, err := l.prepare(ctx)
	if err != nil {
		return fail(err)
	}
	defer p.close(ctx, l.log)
	if err := doctor.Preflight(ctx, l.cfg, version, l.log); err != nil {
		return fail(err)
	}
	supervisor, err := procs.NewSupervisor(procs.Options{
		Console: l.console, Workers: l.cfg.NprocPerNode, Logger: l.log, KillTimeout: killTimeout, Track: p.gpus != nil,
		Expired: l.lifeline.DeadlinePassed, Suspension: &l.signals.suspension,
	})
	if err != nil {
		return fail(err)
	}
	defer func() { _ = supervisor.Close() }() // fails only if processes survive SIGKILL, which Run has reported
	a, err := l.agent(p, supervisor)
	if err != nil {
		return fail(err)
	}
	l.telemetry.Attach(ctx, a, p.gpus, p.liveness, l.job(p))
	endRequests := l.showStacksOnRequest(ctx)
	defer endRequests()
	result, err := a.Run(ctx)
	result.StoreRefusal = p.rendezvous.Refused()
	rep := a.Report(result)
	rep.LogDir, rep.Hangs = p.logs.Path(), l.telemetry.Hangs()
	return result, rep, err
}
