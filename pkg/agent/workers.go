package agent

import (
	"errors"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// usageInterval is how often workers are sampled.
const usageInterval = 5 * time.Second

// startWorkers starts one process for each worker of the group (seed 002,
// _start_workers).
func (a *Agent) startWorkers() error {
	again := a.files != nil
	specs, err := a.buildSpecs()
	if err != nil {
		return err
	}
	a.openScene(specs)
	processes, err := a.opts.Launcher.Start(specs, a.round.Over)
	if errors.Is(err, workerlog.ErrLogFile) && a.canLackLogs(again) {
		if specs, err = a.withoutLogs(err); err != nil {
			return err
		}
		a.openScene(specs)
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
		if w.PID == 0 { // it was not started
			continue
		}
		a.emit(workerEvent(events.KindWorkerStarted, w))
	}
	return nil
}

// buildSpecs says what to start for the current round.
func (a *Agent) buildSpecs() ([]procs.Spec, error) {
	again := a.files != nil
	attempt, files, err := a.logFiles()
	if err != nil {
		if !a.canLackLogs(again) {
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

// specsOf says what to start where the log paths are these.
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

// canLackLogs reports whether the job goes on where logs cannot be made: a folder that has filled up is no reason to end a job
// that has run already, and a temporary one is none in any case.
func (a *Agent) canLackLogs(again bool) bool { return again || a.opts.LogFolders.Optional() }

// withoutLogs says what to start where err keeps logs from being made.
func (a *Agent) withoutLogs(err error) ([]procs.Spec, error) {
	a.log.Warn().Err(err).Msg("the workers get no log files and no error files")
	a.files = make([]workerlog.LogFiles, a.opts.Spec.LocalWorldSize)
	return a.specsOf(a.files)
}

// describeLogs says in the attempt's folder whose logs these are. Logs can do without.
func (a *Agent) describeLogs(attempt *workerlog.Attempt) {
	g := a.group
	err := attempt.CreateTimeline(workerlog.TimelineHead{
		RunID: a.opts.Rendezvous.RunID(), Round: g.Round, Host: a.hostname, NodeRank: g.GroupRank,
		Base: g.Workers[0].GlobalRank, Workers: len(g.Workers), Role: g.Spec.Role,
	})
	if err != nil {
		a.log.Warn().Err(err).Msg("elasticrun logs will not know when lines were written")
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

// startSpec says how one worker is started.
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

// sampleUsage emits usage events while the group runs, if anybody takes them.
// The function it returns ends the sampling and waits for it.
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
