package agent

import (
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/procs"
)

// scene is what is kept of one start of the workers for the case that it fails.
type scene struct {
	began    time.Time
	memory   evidence.Memory     // before it
	scanners []*evidence.Scanner // of the stderrs, by local rank
	closed   bool                // gathering was given up once: what is on a disk is not looked at again
}

// openScene is called before the workers that it shows to scanners are started.
func (a *Agent) openScene(specs []procs.Spec) {
	a.scene = scene{began: time.Now(), scanners: make([]*evidence.Scanner, len(specs))}
	if a.opts.Kernel != nil {
		a.opts.Kernel.Mark()
		a.scene.memory = a.opts.Kernel.Memory()
	}
	for i := range specs {
		scanner := new(evidence.Scanner)
		specs[i].Stderr.Scan = scanner
		a.scene.scanners[specs[i].LocalRank] = scanner
	}
}

// tell makes the scanners tell c of news; see evidence.Scanner.Tell.
func (s scene) tell(c chan<- struct{}) {
	for _, scanner := range s.scanners {
		scanner.Tell(c)
	}
}

// collectFailures gathers why the workers have failed of a group whose stop began at that time; taken are exits that were taken before.
// The group's output is complete.
func (a *Agent) collectFailures(p Processes, taken []procs.Exit, began time.Time) map[int]Failure {
	exits := taken
	for len(p.Exits()) > 0 {
		e := <-p.Exits()
		a.tellEnded(e)
		if a.stuck == nil || a.stuck.LocalRank != e.LocalRank { // it only ended because it was stopped
			exits = append(exits, e)
		}
	}
	// Whoever was stopped may have an end in order for all it had done.
	exits = slices.DeleteFunc(exits, func(e procs.Exit) bool { return e.Success() && !e.Stopped })
	failures := make(map[int]Failure)
	for _, f := range a.inquire(p, exits, began, true) {
		if len(f.Findings) > 0 {
			failures[f.GlobalRank] = f
		}
	}
	return failures
}

// inquiryBound is how long it may take to find out why workers have failed: a disk that does not answer, as that of a file server which is gone, must not
// hold up the job.
const inquiryBound = 2 * time.Second

// inquire finds out how and why workers have ended, of which those that were stopped were at that time; if asked, with what the kernel knows. Where no Findings
// are found against a worker, it is not to blame. What cannot be read in time is left out, with a warning.
func (a *Agent) inquire(p Processes, exits []procs.Exit, stopBegan time.Time, askKernel bool) []Failure {
	if len(exits) == 0 {
		return nil
	}
	q := a.newInquiry(p, stopBegan)
	var all []Failure
	if !a.scene.closed {
		if all = a.await(q, exits, askKernel && a.opts.Kernel != nil); len(all) == len(exits) {
			return all
		}
		a.scene.closed = true
		a.log.Warn().Str("missing", q.step()).Dur("after", inquiryBound).Msg("evidence is incomplete")
	}
	for _, e := range exits[len(all):] {
		all = append(all, q.describe(e, clues{}))
	}
	return all
}

// await returns what the inquiry has found out within the bound. If that is not all, the inquiry's goroutine is left to itself, as nothing ends a
// wait for a disk; it has nothing that others write to.
func (a *Agent) await(q *inquiry, exits []procs.Exit, askKernel bool) (all []Failure) {
	found := make(chan Failure, len(exits))
	go func() {
		defer close(found)
		var kernel *kernelView
		if askKernel {
			kernel = q.askKernel()
		}
		for _, e := range exits {
			found <- q.describe(e, q.read(e, kernel))
		}
	}()
	bound := time.NewTimer(inquiryBound)
	defer bound.Stop()
	for {
		select {
		case f, more := <-found:
			if !more {
				return all
			}
			all = append(all, f)
		case <-bound.C:
			return all
		}
	}
}
