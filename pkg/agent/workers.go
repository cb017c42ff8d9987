package agent

import (
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/procs"
)

// usageInterval is how often workers are sampled.
const usageInterval = 5 * time.Second

// startWorkers starts one process for each worker of the group (seed 002,
// _start_workers).
func (a *Agent) startWorkers() error {
	specs, err := a.buildSpecs()
	if err != nil {
		return err
	}
	processes, err := a.opts.Launcher.Start(specs)
	if err != nil {
		return err
	}
	a.processes, a.running = processes, len(specs)
	a.mu.Lock()
	for rank, pid := range processes.PIDs() {
		a.group.Workers[rank].PID = pid
	}
	group := a.group.clone()
	a.mu.Unlock()
	for _, w := range group.Workers {
		a.emitWorker("START", w, nil)
	}
	return nil
}

// buildSpecs says what to start for the current round.
func (a *Agent) buildSpecs() ([]procs.Spec, error) {
	var err error
	if a.files, err = a.logFiles(); err != nil {
		return nil, err
	}
	var specs []procs.Spec
	for _, w := range a.group.Workers {
		spec, err := a.buildSpec(w, a.files[w.LocalRank])
		if err != nil {
			return nil, err
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

// logFiles makes the log paths of all workers. A temporary folder that has filled
// up is no reason to end a job.
func (a *Agent) logFiles() ([]procs.LogFiles, error) {
	all := make([]procs.LogFiles, a.opts.Spec.LocalWorldSize)
	attempt, err := a.opts.LogFolders.Attempt(a.restarts, a.round.Number, a.membership)
	for i := 0; err == nil && i < len(all); i++ {
		all[i], err = attempt.Files(i)
	}
	if err != nil && a.opts.LogFolders.Optional() {
		a.log.Warn().Err(err).Msg("the workers get no log files and no error files")
		return make([]procs.LogFiles, len(all)), nil
	}
	return all, err
}

func (a *Agent) buildSpec(w Worker, files procs.LogFiles) (procs.Spec, error) {
	s := a.opts.Spec
	env, err := workerEnv(envInput{
		base: a.opts.Env, spec: s, group: a.group, worker: w, round: a.round,
		runID: a.opts.Rendezvous.RunID(), restartCount: a.restarts, errorFile: files.Error,
	})
	if err != nil {
		return procs.Spec{}, err
	}
	spec := procs.Spec{LocalRank: w.LocalRank, Argv: s.Command(w.LocalRank), Env: env}
	if s.CPUs != nil {
		spec.CPUs = s.CPUs[w.LocalRank]
	}
	prefix := procs.LinePrefix(s.PrefixTemplate, procs.PrefixVars{
		Role: s.Role, LocalRank: w.LocalRank, Rank: w.GlobalRank, Hostname: a.hostname,
	})
	spec.Stdout, spec.Stderr = s.Output.Outputs(w.LocalRank, prefix, files)
	return spec, nil
}

// collectFailures gathers what the workers ended with of a group whose stop,
// with the signal stop, began at that time; first was taken before, if it is not nil.
func (a *Agent) collectFailures(p Processes, first *procs.Exit, stop syscall.Signal, began time.Time) map[int]Failure {
	var exits []procs.Exit
	if first != nil {
		exits = append(exits, *first)
	}
	for len(p.Exits()) > 0 {
		exits = append(exits, <-p.Exits())
	}
	failures := make(map[int]Failure)
	for _, e := range exits {
		if e.Success() {
			continue
		}
		f := a.describeFailure(p, e)
		if !f.isVictim(stop, began) {
			failures[f.GlobalRank] = f
		}
	}
	return failures
}

// describeFailure adds to an exit what the worker left behind.
func (a *Agent) describeFailure(p Processes, e procs.Exit) Failure {
	files := a.files[e.LocalRank]
	f := Failure{
		Host: a.hostname, LocalRank: e.LocalRank, GlobalRank: a.group.Workers[e.LocalRank].GlobalRank,
		Exit: e, Time: e.At, ErrorFile: files.Error, StderrTail: p.Tail(e.LocalRank),
	}
	var err error
	if f.Error, err = readErrorFile(files.Error); err != nil {
		f.ErrorFileProblem = err.Error()
	}
	f.Time = f.happened()
	s := a.opts.Spec.Output
	if (s.Redirects.Of(e.LocalRank) | s.Tee.Of(e.LocalRank)).Has(procs.Stderr) {
		f.LogFile = files.Stderr
	}
	return f
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

func (a *Agent) emitUsage(now time.Time, g WorkerGroup, pids map[int]int, sample map[int]procs.Usage) {
	for _, rank := range slices.Sorted(maps.Keys(sample)) {
		u := sample[rank]
		a.sink.Emit(events.Usage{
			Time: now, RunID: a.opts.Rendezvous.RunID(), GlobalRank: g.Workers[rank].GlobalRank, LocalRank: rank,
			PID: pids[rank], Processes: u.Processes, CPUPercent: 100 * u.CPU,
			RSSBytes: u.RSS, ReadBytes: u.ReadBytes, WriteBytes: u.WriteBytes,
		})
	}
}
