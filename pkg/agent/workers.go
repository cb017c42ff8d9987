package agent

import (
	"errors"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// usageInterval is the time between two samples.
const usageInterval = 5 * time.Second

// startWorkers starts one process per worker, like _start_workers of torch's LocalElasticAgent.
func (a *Agent) startWorkers() error {
	again := a.files != nil
	specs, err := a.buildSpecs()
	if err != nil {
		return err
	}
	a.beginEvidence(specs)
	processes, err := a.opts.Launcher.Start(specs, a.round.Over)
	if errors.Is(err, workerlog.ErrLogFile) && a.mayLackLogs(again) {
		if specs, err = a.withoutLogs(err); err != nil {
			return err
		}
		a.beginEvidence(specs)
		processes, err = a.opts.Launcher.Start(specs, a.round.Over)
	}
	if err != nil {
		return err
	}
	a.processes, a.running = processes, len(specs)
	a.mu.Lock()
	for rank, pid := range processes.PIDs() {
		a.group.Workers[rank].PID = pid
	}
	a.shown = processes
	group := a.group.clone()
	a.mu.Unlock()
	for _, w := range group.Workers {
		if w.PID == 0 { // it was not started, as its exit says
			continue
		}
		a.emit(workerEvent(events.KindWorkerStarted, w))
	}
	return nil
}

// buildSpecs returns what to start for the current round.
func (a *Agent) buildSpecs() ([]procs.Spec, error) {
	again := a.files != nil
	attempt, files, err := a.logFiles()
	if err != nil {
		if !a.mayLackLogs(again) {
			return nil, err
		}
		return a.withoutLogs(err)
	}
	a.files = files
	specs, err := a.specsOf(files)
	logged := func(s procs.Spec) bool { return s.Stdout.Timeline != "" || s.Stderr.Timeline != "" }
	if slices.ContainsFunc(specs, logged) {
		a.describeLogs(attempt)
	}
	return specs, err
}

// specsOf returns what to start with these log paths.
func (a *Agent) specsOf(files []workerlog.LogFiles) ([]procs.Spec, error) {
	var specs []procs.Spec
	for _, w := range a.group.Workers {
		spec, err := a.buildSpec(w, files[w.LocalRank])
		if err != nil {
			return nil, err
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

// mayLackLogs reports whether the job goes on if logs cannot be made. A full folder must not end a job that has already
// run, and a temporary folder never ends one.
func (a *Agent) mayLackLogs(again bool) bool { return again || a.opts.LogFolders.Optional() }

// withoutLogs returns what to start if err keeps logs from being made.
func (a *Agent) withoutLogs(err error) ([]procs.Spec, error) {
	a.log.Warn().Err(err).Msg("the workers get no log files and no error files")
	a.files = make([]workerlog.LogFiles, a.opts.Spec.LocalWorldSize)
	return a.specsOf(a.files)
}

// describeLogs writes into the attempt's folder which workers the logs belong to. An error is only logged.
func (a *Agent) describeLogs(attempt *workerlog.Attempt) {
	g := a.group
	err := attempt.CreateTimeline(workerlog.TimelineHead{
		RunID: a.opts.Rendezvous.RunID(), Round: g.Round, Host: a.hostname, NodeRank: g.GroupRank,
		Base: g.Workers[0].GlobalRank, Workers: len(g.Workers), Role: g.Spec.Role,
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

func (a *Agent) buildSpec(w Worker, files workerlog.LogFiles) (procs.Spec, error) {
	return startSpec(envInput{
		base: a.opts.Env, spec: a.opts.Spec, group: a.group, worker: w, round: a.round,
		runID: a.opts.Rendezvous.RunID(), restartCount: a.restarts, errorFile: files.Error, tracePrefix: files.TracePrefix,
	}, a.hostname, files)
}

// startSpec returns how one worker is started.
func startSpec(in envInput, hostname string, files workerlog.LogFiles) (procs.Spec, error) {
	s, w := in.spec, in.worker
	env, err := workerEnv(in)
	if err != nil {
		return procs.Spec{}, err
	}
	spec := procs.Spec{LocalRank: w.LocalRank, Argv: s.Command(w.LocalRank), Env: env}
	if s.CPUs != nil {
		spec.CPUs = s.CPUs[w.LocalRank]
	}
	prefix := workerlog.LinePrefix(s.PrefixTemplate, workerlog.PrefixVars{
		Role: s.Role, LocalRank: w.LocalRank, Rank: w.GlobalRank, NodeRank: in.group.GroupRank, Hostname: hostname,
	})
	spec.Stdout, spec.Stderr = s.Output.Outputs(w.ranks(), prefix, files)
	return spec, nil
}

// sampleUsage emits samples while the group runs, if there is a sampler. The function it returns ends the sampling and
// waits for its goroutine.
func (a *Agent) sampleUsage() (stop func()) {
	if a.opts.Usage == nil {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	pids := a.processes.PIDs()
	group := a.group.clone()
	go func() {
		defer close(done)
		tick := time.NewTicker(usageInterval)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case now := <-tick.C:
				a.emitUsage(now, group, pids, a.opts.Usage.Sample(pids))
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}
