package agent

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// inquiry has all that is needed to find out why workers have failed. It may outlive the wait for its answers, and so it shares nothing with the
// agent that is still written to.
type inquiry struct {
	processes Processes
	stopBegan time.Time
	peersLost time.Time // when the first worker lost a peer; zero: none has, as far as is known
	scene     scene
	kernel    Kernel
	host      string
	round     int
	workers   []Worker // by local rank, of which the ranks are used
	files     []workerlog.LogFiles
	output    workerlog.OutputRules
	stuck     *procs.Exit
	stuckFor  time.Duration
	current   atomic.Value // string: what is being read
}

func (a *Agent) newInquiry(p Processes, stopBegan time.Time) *inquiry {
	return &inquiry{
		processes: p, stopBegan: stopBegan, scene: a.scene, kernel: a.opts.Kernel, host: a.hostname, round: a.round.Number,
		workers: slices.Clone(a.group.Workers), files: a.files, output: a.opts.Spec.Output, stuck: a.stuck, stuckFor: a.opts.ErrorExitTimeout,
	}
}

func (q *inquiry) reads(what string) { q.current.Store(what) }

// step is what the inquiry is reading, or has read last.
func (q *inquiry) step() string {
	what, _ := q.current.Load().(string)
	return what
}

// kernelView is what the kernel says after the workers have ended.
type kernelView struct {
	log    evidence.KernelLog
	memory evidence.Memory
}

func (q *inquiry) askKernel() *kernelView {
	q.reads("the kernel's log and counters")
	return &kernelView{q.kernel.Log(), q.kernel.Memory()}
}

// clues are what had to be read about one worker, from disks and from the kernel. The zero value is for one about which nothing could be.
type clues struct {
	read      bool
	errorFile *ErrorFile
	problem   string // with the error file
	tail      []string
	shown     []evidence.Finding // on a stderr that is a file
	core      string
	kernel    *kernelView // nil: it was not asked
}

// logFile is where a worker's stderr goes; empty for nowhere.
func (q *inquiry) logFile(localRank int) string {
	ranks := q.workers[localRank].ranks()
	if (q.output.Redirects.Of(ranks) | q.output.Tee.Of(ranks)).Has(workerlog.Stderr) {
		return q.files[localRank].Stderr
	}
	return ""
}

// inFile says that a worker writes its stderr into its file by itself.
func (q *inquiry) inFile(localRank int) bool {
	return q.logFile(localRank) != "" && !q.scene.scanners[localRank].Used()
}

// read gathers the clues about a worker.
func (q *inquiry) read(e procs.Exit, kernel *kernelView) clues {
	c := clues{read: true, kernel: kernel}
	path, logFile := q.files[e.LocalRank].Error, q.logFile(e.LocalRank)
	q.reads("error file " + path)
	var err error
	if c.errorFile, err = readErrorFile(path); err != nil {
		c.problem = err.Error()
	}
	q.reads(cmp.Or(logFile, "the last lines of stderr"))
	c.tail = q.processes.Tail(e.LocalRank)
	if q.inFile(e.LocalRank) {
		c.shown = evidence.ScanFile(logFile)
	}
	if kernel != nil && e.CoreDumped && !e.Stopped {
		q.reads("the folder of the core")
		c.core = q.kernel.Core(e.PID, e.Signal, q.scene.began)
	}
	return c
}

// describe says how and why a worker has ended.
func (q *inquiry) describe(e procs.Exit, c clues) Failure {
	f := Failure{
		Host: q.host, Round: q.round, LocalRank: e.LocalRank, GlobalRank: q.workers[e.LocalRank].GlobalRank, Exit: e,
		ErrorFile: q.files[e.LocalRank].Error, Error: c.errorFile, ErrorFileProblem: c.problem, StderrTail: c.tail, LogFile: q.logFile(e.LocalRank),
	}
	if !c.read {
		if !q.inFile(e.LocalRank) {
			f.StderrTail = q.processes.Tail(e.LocalRank)
		}
		if !e.Stopped && f.ErrorFile != "" {
			f.ErrorFileProblem = fmt.Sprintf("error file %s was not read within %v", f.ErrorFile, inquiryBound)
		}
	}
	f.Findings = evidence.Judge(q.caseOf(f, c))
	if q.stuck != nil && q.stuck.LocalRank == e.LocalRank {
		f.Stuck = q.stuckFor
		f.Findings = slices.DeleteFunc(f.Findings, func(x evidence.Finding) bool { return x.Kind == evidence.Exited }) // it did not
		stuck := evidence.Finding{
			Kind: evidence.Stuck, Time: e.At, Text: fmt.Sprintf("had written its error file, and did not end within %v", f.Stuck),
		}
		at := len(f.Findings)
		if at > 0 && f.Findings[0].Kind != evidence.ErrorFile && f.Kind().Grade() > stuck.Kind.Grade() { // half a file, and nothing else but a guess
			at = 0
		}
		f.Findings = slices.Insert(f.Findings, at, stuck)
	}
	if f.Time = evidence.Earliest(f.Findings); f.Time.IsZero() {
		f.Time = e.At
	}
	return f
}

// caseOf puts together what there is about a worker.
func (q *inquiry) caseOf(f Failure, found clues) evidence.Case {
	e := f.Exit
	c := evidence.Case{
		Code: e.Code, Signal: e.Signal, At: e.At, Began: q.scene.began, Text: e.String(), Failed: e.StartErr != nil, Core: found.core,
		Last: f.StderrTail, PeersLost: q.peersLost,
	}
	if e.Stopped {
		c.Stopped, c.State = q.stopBegan, q.scene.states[e.LocalRank]
	}
	if f.Error != nil {
		text, ofPeer := evidence.OfErrorFile(f.Error.Message, f.Error.CallStack)
		c.ErrorFile = &evidence.Finding{Kind: evidence.ErrorFile, Time: f.Error.happened(), Text: text}
		if ofPeer {
			c.ErrorFile.Kind = evidence.PeerLost
		}
		c.ErrorWritten = f.Error.Written
	}
	if c.Shown = found.shown; !q.inFile(e.LocalRank) {
		c.Shown = q.scene.scanners[e.LocalRank].Findings()
	}
	kernel := found.kernel
	if kernel == nil {
		return c
	}
	c.Shown = append(c.Shown, kernel.log.XidsOf(e.PID, !e.Stopped)...)
	if e.Stopped {
		return c
	}
	var oom evidence.Finding
	var killed bool
	if e.Signal == syscall.SIGKILL {
		oom, killed = evidence.OOM(e.PID, e.At, q.scene.memory, kernel.memory, kernel.log.Kills, kernel.log.Readable)
	} else {
		oom, killed = evidence.OOMOfChild(c, q.scene.memory, kernel.memory, kernel.log.Kills, q.pids())
	}
	if killed {
		c.OOM = &oom
	}
	return c
}

// pids are those of the workers.
func (q *inquiry) pids() map[int]bool {
	all := make(map[int]bool)
	for pid := range maps.Values(q.processes.PIDs()) {
		all[pid] = true
	}
	return all
}
