package agent

import (
	"errors"
	"slices"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// startWorkers starts one process per worker, like _start_workers of torch's LocalElasticAgent.
func (a *Agent) startWorkers() error {
	// A full folder must not end a job that has already run, and a temporary folder never ends one.
	mayLackLogs := a.files != nil || a.opts.LogFolders.Optional()
	var processes Processes
	attempt, files, err := a.logFiles()
	lacksLogs := err != nil
	if err == nil {
		processes, err = a.launch(attempt, files)
		lacksLogs = errors.Is(err, workerlog.ErrLogFile)
	}
	if lacksLogs && mayLackLogs {
		a.log.Warn().Err(err).Msg("the workers get no log files and no error files")
		processes, err = a.launch(attempt, make([]workerlog.LogFiles, a.opts.Spec.LocalWorldSize))
	}
	if err != nil {
		return err
	}
	a.processes, a.running = processes, len(a.workers)
	for rank, pid := range processes.PIDs() {
		a.workers[rank].PID = pid
	}
	a.opts.Rendezvous.Started()
	a.mu.Lock()
	a.shown = processes
	a.mu.Unlock()
	for _, w := range a.workers {
		if w.PID != 0 { // else it was not started, as its exit says
			a.emit(workerEvent(events.KindWorkerStarted, w))
		}
	}
	return nil
}

// launch starts the workers of the current round with these log paths.
func (a *Agent) launch(attempt *workerlog.Attempt, files []workerlog.LogFiles) (Processes, error) {
	a.files = files
	specs, err := StartSpecs(a.opts.Spec, StartInput{
		Round: a.round, RunID: a.opts.Rendezvous.RunID(), Hostname: a.hostname, Env: a.opts.Env, Files: files,
		WorkerDir: a.opts.WorkerDir,
	})
	if err != nil {
		return nil, err
	}
	logged := func(s procs.Spec) bool { return s.Stdout.Timeline != "" || s.Stderr.Timeline != "" }
	if slices.ContainsFunc(specs, logged) {
		a.describeLogs(attempt)
	}
	a.beginEvidence(specs)
	a.countOutput(specs)
	a.resetTimers()
	return a.opts.Launcher.Start(specs, a.round.Over)
}

// describeLogs writes into the attempt's folder which workers the logs belong to. An error is only logged.
func (a *Agent) describeLogs(attempt *workerlog.Attempt) {
	err := attempt.CreateTimeline(workerlog.TimelineHead{
		RunID: a.opts.Rendezvous.RunID(), Round: a.round.Number, Host: a.hostname, NodeRank: a.round.Rank,
		Base: a.workers[0].GlobalRank, Workers: len(a.workers), Role: a.opts.Spec.Role,
		After: a.history.startReason(a.membership),
	})
	if err != nil {
		a.log.Warn().Err(err).Msg("cannot describe the logs: elasticrun logs will not know when lines were written")
	}
}

// logFiles makes the log paths of all workers.
func (a *Agent) logFiles() (*workerlog.Attempt, []workerlog.LogFiles, error) {
	attempt, err := a.opts.LogFolders.Attempt(a.restarts, a.round.Number, a.membership)
	if err != nil {
		return nil, nil, err
	}
	all := make([]workerlog.LogFiles, a.opts.Spec.LocalWorldSize)
	for i := range all {
		if all[i], err = attempt.Files(i); err != nil {
			return nil, nil, err
		}
	}
	a.history.logDir(attempt.Path())
	return attempt, all, nil
}

// StartInput is what the start of this node's workers depends on, besides their spec.
type StartInput struct {
	Round *rdzv.Round
	RunID string
	// Hostname is this node's.
	Hostname string
	// Env is the environment of the workers; torch's variables are set over it.
	Env []string
	// WorkerDir is [Options].WorkerDir.
	WorkerDir string
	// Files are the log paths of each worker, by local rank. Without a path for errors, torch writes no error file.
	// Without a prefix for traces, the variables of the flight recorder stay as they are in Env.
	Files []workerlog.LogFiles
}

// StartSpecs returns how this node's workers are started in a round, by local rank. It starts nothing.
func StartSpecs(s WorkerSpec, in StartInput) ([]procs.Spec, error) {
	var specs []procs.Spec
	for _, w := range assignWorkers(in.Round.Assignment, s.LocalWorldSize) {
		env, err := workerEnv(s, w, in)
		if err != nil {
			return nil, err
		}
		spec := procs.Spec{LocalRank: w.LocalRank, Argv: s.Command(w.LocalRank), Env: env}
		if s.CPUs != nil {
			spec.CPUs = s.CPUs[w.LocalRank]
		}
		prefix := workerlog.LinePrefix(s.PrefixTemplate, workerlog.PrefixVars{
			Role: s.Role, LocalRank: w.LocalRank, Rank: w.GlobalRank, NodeRank: in.Round.Rank, Hostname: in.Hostname,
		})
		spec.Stdout, spec.Stderr = s.Output.Outputs(w.ranks(), prefix, in.Files[w.LocalRank])
		specs = append(specs, spec)
	}
	return specs, nil
}
