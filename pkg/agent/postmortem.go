package agent

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// postmortem finds out why workers have failed. Its reading goroutine may outlive the wait for it, so the agent writes
// nothing that a postmortem reads.
type postmortem struct {
	processes Processes
	stopBegan time.Time
	peersLost time.Time // when the first worker lost a peer; zero if none has, as far as is known
	evidence  attemptEvidence
	kernel    Kernel
	host      string
	round     int
	workers   []Worker // by local rank
	files     []workerlog.LogFiles
	output    workerlog.OutputRules
	hung      *hungWorker          // nil for none
	expired   map[int]expiredTimer // by local rank
	current   atomic.Value         // string: what is being read
}

func (a *Agent) newPostmortem(p Processes, stopBegan time.Time) *postmortem {
	return &postmortem{
		processes: p, stopBegan: stopBegan, evidence: a.evidence, kernel: a.opts.Kernel, host: a.hostname,
		round: a.round.Number, workers: a.workers, files: a.files, output: a.opts.Spec.Output,
		hung: a.hung, expired: maps.Clone(a.expired),
	}
}

func (pm *postmortem) setReading(what string) { pm.current.Store(what) }

// reading returns what is being read, or was read last.
func (pm *postmortem) reading() string {
	what, _ := pm.current.Load().(string)
	return what
}

func (pm *postmortem) readKernel() *evidence.KernelReport {
	pm.setReading("the kernel's log and counters")
	log := pm.kernel.Log()
	return &evidence.KernelReport{Before: pm.evidence.memory, After: pm.kernel.Memory(), Log: log}
}

// workerEvidence is what was read about one worker, from disks and from the kernel. The zero value stands for a worker
// about which nothing could be read.
type workerEvidence struct {
	read             bool
	errorFile        *errorFile
	errorFileProblem string
	tail             []string          // last lines of stderr
	shown            []failure.Finding // on a stderr that is a file
	core             string
	kernel           *evidence.KernelReport // nil if the kernel was not asked
}

// logFile returns the file that a worker's stderr goes to; empty for none.
func (pm *postmortem) logFile(localRank int) string {
	ranks := pm.workers[localRank].ranks()
	if (pm.output.Redirects.Of(ranks) | pm.output.Tee.Of(ranks)).Has(workerlog.Stderr) {
		return pm.files[localRank].Stderr
	}
	return ""
}

// writesOwnFile reports whether a worker writes its stderr into its file itself, so that no scanner sees it.
func (pm *postmortem) writesOwnFile(localRank int) bool {
	return pm.logFile(localRank) != "" && !pm.evidence.scanners[localRank].Used()
}

// read reads the evidence about a worker.
func (pm *postmortem) read(x procs.Exit, kernel *evidence.KernelReport) workerEvidence {
	e := workerEvidence{read: true, kernel: kernel}
	path, logFile := pm.files[x.LocalRank].Error, pm.logFile(x.LocalRank)
	pm.setReading("error file " + path)
	var err error
	if e.errorFile, err = readErrorFile(path); err != nil {
		e.errorFileProblem = err.Error()
	}
	pm.setReading(cmp.Or(logFile, "the last lines of stderr"))
	e.tail = pm.processes.Tail(x.LocalRank)
	if pm.writesOwnFile(x.LocalRank) {
		e.shown = evidence.ScanFile(logFile)
	}
	if kernel != nil && x.CoreDumped && !x.Stopped {
		pm.setReading("the folder of the core")
		e.core = pm.kernel.Core(x.PID, x.Signal, pm.evidence.started)
	}
	return e
}

// failure says how and why a worker has ended. Without findings the worker is not to blame.
func (pm *postmortem) failure(x procs.Exit, e workerEvidence) failure.Failure {
	errorFile := pm.files[x.LocalRank].Error
	if !e.read {
		if !pm.writesOwnFile(x.LocalRank) {
			e.tail = pm.processes.Tail(x.LocalRank)
		}
		if !x.Stopped && errorFile != "" {
			e.errorFileProblem = fmt.Sprintf("error file %s was not read within %s", errorFile, seconds.Format(readTimeout))
		}
	}
	f := failure.Failure{
		Host: pm.host, Round: pm.round, LocalRank: x.LocalRank, GlobalRank: pm.workers[x.LocalRank].GlobalRank,
		PID: x.PID, ExitCode: x.Code, Signal: x.Signal, CoreDumped: x.CoreDumped, Stopped: x.Stopped, Final: x.Unexecutable(),
		ErrorFileProblem: e.errorFileProblem, LogFile: pm.logFile(x.LocalRank),
	}
	if e.errorFile != nil {
		f.Message, f.RawErrorFile = e.errorFile.Message, e.errorFile.Raw
	}
	if e.errorFile != nil || e.errorFileProblem != "" {
		f.ErrorFile = errorFile
	}
	f.Findings = evidence.Judge(pm.caseOf(x, e))
	hung := pm.hung.is(x.LocalRank)
	if hung {
		f.Findings, f.NoRestart = pm.hung.explain(f.Findings, x.At), pm.hung.asleep
	}
	f.Findings = pm.expired[x.LocalRank].withTimer(f.Findings, x)
	if f.Time = evidence.Earliest(f.Findings); f.Time.IsZero() {
		f.Time = x.At
	}
	f.Kind = kindOf(x)
	if len(f.Findings) > 0 {
		f.Kind = f.Findings[0].Kind
	}
	f.Waited = f.Kind == failure.PeerLost && slices.ContainsFunc(f.Findings, evidence.IsWaiting)
	f.Summary = summary(x, f.Findings)
	if hung && !pm.hung.asleep && e.errorFile != nil {
		f.Summary = fmt.Sprintf("%s (and had not ended %s after it wrote its error file%s)", f.Summary,
			seconds.Format(pm.hung.after), pm.hung.wasAt())
	}
	f.Text = failureText(x, f.Summary, e)
	return f
}

// caseOf assembles the evidence about a worker.
func (pm *postmortem) caseOf(x procs.Exit, e workerEvidence) evidence.Case {
	c := evidence.Case{
		Code: x.Code, Signal: x.Signal, At: x.At, Began: pm.evidence.started, Text: x.String(), Failed: x.StartErr != nil,
		Core: e.core,
		Last: e.tail, PeersLost: pm.peersLost,
	}
	if x.Stopped {
		c.Stopped, c.State = pm.stopBegan, pm.evidence.states[x.LocalRank]
	}
	if file := e.errorFile; file != nil {
		text, ofPeer := evidence.SummarizeErrorFile(file.Message, file.CallStack)
		c.ErrorFile = &failure.Finding{Kind: failure.ErrorFile, Time: file.happened(), Text: text}
		if ofPeer {
			c.ErrorFile.Kind = failure.PeerLost
		}
		c.ErrorWritten = file.Written
	}
	if c.Shown = e.shown; !pm.writesOwnFile(x.LocalRank) {
		c.Shown = pm.evidence.scanners[x.LocalRank].Findings()
	}
	if e.kernel != nil {
		c.Shown = append(c.Shown, e.kernel.Log.XidsOf(x.PID, !x.Stopped)...)
		if !x.Stopped {
			c.OOM, c.AboutOOM = e.kernel.OOM(c, x.PID, pm.processes.PIDs()), e.kernel.AboutOOM()
		}
	}
	return c
}

// kindOf returns the kind of failure that follows from an exit without evidence.
func kindOf(x procs.Exit) failure.Kind {
	if x.Signal != 0 {
		return failure.Killed
	}
	return failure.Exited
}

// summary says in one line why a worker failed.
func summary(x procs.Exit, findings []failure.Finding) string {
	for _, f := range findings {
		if first, _, _ := strings.Cut(strings.TrimSpace(f.Text), "\n"); first != "" {
			return first
		}
	}
	return x.String()
}

// failureText returns the error file's traceback or message if there is one, else the signal or the failed start, and
// the tail of stderr.
func failureText(x procs.Exit, summary string, e workerEvidence) string {
	if file := e.errorFile; file != nil {
		if file.CallStack != "" {
			return strings.TrimRight(file.CallStack, "\n")
		}
		return file.Message
	}
	var parts []string
	switch {
	case x.StartErr != nil:
		parts = append(parts, x.String())
	case x.Signal != 0:
		parts = append(parts, fmt.Sprintf("Signal %d (%s) received by PID %d", int(x.Signal), procs.SignalName(x.Signal),
			x.PID))
		if strings.TrimSuffix(summary, evidence.NotOOM) != x.String() {
			parts = append(parts, summary)
		}
	}
	if e.errorFileProblem != "" {
		parts = append(parts, e.errorFileProblem)
	}
	if tail := trimBlank(e.tail); len(tail) > 0 {
		parts = append(parts, "last lines of stderr:")
		for _, line := range tail {
			parts = append(parts, "  "+line)
		}
	}
	if len(parts) == 0 {
		return "<none: the worker wrote nothing to stderr and no error file>"
	}
	return strings.Join(parts, "\n")
}

// trimBlank removes blank lines at both ends.
func trimBlank(lines []string) []string {
	blank := func(s string) bool { return strings.TrimSpace(s) == "" }
	for len(lines) > 0 && blank(lines[0]) {
		lines = lines[1:]
	}
	for len(lines) > 0 && blank(lines[len(lines)-1]) {
		lines = lines[:len(lines)-1]
	}
	return slices.Clone(lines)
}
