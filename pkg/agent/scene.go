package agent

import (
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// scene is what is kept of one start of the workers for the case that it fails.
type scene struct {
	began    time.Time
	memory   evidence.Memory     // before it
	scanners []*evidence.Scanner // of the stderrs, by local rank
	states   map[int]byte        // of the workers' processes, by local rank, before the stop
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

// observe notes what the workers do, of which those that run are about to be stopped.
func (a *Agent) observe(p Processes) {
	a.scene.states = make(map[int]byte)
	if a.opts.States == nil {
		return
	}
	for rank, pid := range p.PIDs() {
		a.scene.states[rank] = a.opts.States.State(pid)
	}
}

// question is what is asked of workers that have ended. The zero value asks about one that the launcher has not stopped.
type question struct {
	stopBegan time.Time // of those that were stopped
	kernel    bool      // ask it, too
	elsewhere bool      // the workers were stopped, or must run again, because one has failed on another node
	waited    bool      // which only tells of having waited for a peer in vain
}

// collectLeft gathers what speaks against workers that have all exited with 0, in a round that is stopped all the same.
func (a *Agent) collectLeft() {
	q := a.questionOfHalt()
	if !q.elsewhere || len(a.left) == 0 {
		return
	}
	a.mu.Lock()
	p := a.shown
	a.mu.Unlock()
	a.failures = a.collectFailures(p, nil, q)
}

// questionOfHalt is what is asked where the round was stopped because of another node.
func (a *Agent) questionOfHalt() question {
	if a.halt == nil {
		return question{}
	}
	waited := strings.HasPrefix(a.halt.Why, rdzv.WhyWaited)
	return question{stopBegan: time.Now(), elsewhere: waited || strings.HasPrefix(a.halt.Why, rdzv.WhyFailed), waited: waited}
}

// collectFailures gathers why the workers have failed of a group that was stopped; taken are exits that were taken before. The group's output is
// complete.
func (a *Agent) collectFailures(p Processes, taken []procs.Exit, q question) map[int]Failure {
	exits := slices.Concat(a.left, taken)
	for len(p.Exits()) > 0 {
		e := <-p.Exits()
		a.emitExit(e)
		if a.stuck == nil || a.stuck.LocalRank != e.LocalRank { // it only ended because it was stopped
			exits = append(exits, e)
		}
	}
	failures := make(map[int]Failure)
	for _, f := range withoutBystanders(a.inquire(p, exits, q), q.waited) {
		failures[f.GlobalRank] = f
	}
	return failures
}

// withoutBystanders returns the failures that have findings, without those of workers that were merely absent: of these it is one for whom the others have
// waited in vain, here or elsewhere. A worker that was paused explains the silence of all others; where more are silent than have waited, nobody knows who began.
func withoutBystanders(all []Failure, waitedElsewhere bool) (kept []Failure) {
	count := func(is func(f Failure) bool) (n int) {
		for _, f := range all {
			if len(f.Findings) > 0 && is(f) {
				n++
			}
		}
		return n
	}
	ofKind := func(k evidence.Kind) func(Failure) bool { return func(f Failure) bool { return f.Kind() == k } }
	paused, absent, waited := count(ofKind(evidence.Paused)), count(ofKind(evidence.Absent)), count(Failure.waited)
	for _, f := range all {
		if len(f.Findings) == 0 || f.Kind() == evidence.Absent && (paused > 0 || !waitedElsewhere && absent > waited) {
			continue
		}
		kept = append(kept, f)
	}
	return kept
}

// inquiryBound is how long it may take to find out why workers have failed: a disk that does not answer, as that of a file server which is gone, must not
// hold up the job.
const inquiryBound = 2 * time.Second

// inquire finds out how and why workers have ended. Where no Findings are found against a worker, it is not to blame. What cannot be read in time
// is left out, with a warning.
func (a *Agent) inquire(p Processes, exits []procs.Exit, asked question) []Failure {
	if len(exits) == 0 {
		return nil
	}
	q := a.newInquiry(p, asked.stopBegan)
	found := make([]clues, len(exits))
	if !a.scene.closed {
		if n := a.await(q, exits, found, asked.kernel && a.opts.Kernel != nil); n < len(exits) {
			a.scene.closed = true
			a.log.Warn().Str("missing", q.step()).Stringer("after", inquiryBound).Msg("evidence is incomplete")
		}
	}
	all := make([]Failure, len(exits))
	for i, e := range exits {
		all[i] = q.describe(e, found[i])
	}
	if q.peersLost = peersLost(all, asked); q.peersLost.IsZero() {
		return all
	}
	for i, e := range exits {
		if len(all[i].Findings) == 0 { // it may be the peer
			all[i] = q.describe(e, found[i])
		}
	}
	return all
}

// peersLost is when the first of the workers lost a peer, as far as they or other nodes tell; zero where none has.
func peersLost(all []Failure, asked question) (first time.Time) {
	for _, f := range all {
		for _, x := range f.Findings {
			if x.Kind == evidence.PeerLost && !x.Time.IsZero() && (first.IsZero() || x.Time.Before(first)) {
				first = x.Time
			}
		}
	}
	if first.IsZero() && asked.elsewhere {
		first = asked.stopBegan
	}
	return first
}

// await has the clues to exits read, in their order, and returns how many came within the bound. If those are not all, the inquiry's goroutine is left to
// itself, as nothing ends a wait for a disk; it has nothing that others write to.
func (a *Agent) await(q *inquiry, exits []procs.Exit, found []clues, askKernel bool) (n int) {
	read := make(chan clues, len(exits))
	go func() {
		defer close(read)
		var kernel *kernelView
		if askKernel {
			kernel = q.askKernel()
		}
		for _, e := range exits {
			read <- q.read(e, kernel)
		}
	}()
	bound := time.NewTimer(inquiryBound)
	defer bound.Stop()
	for {
		select {
		case c, more := <-read:
			if !more {
				return n
			}
			found[n] = c
			n++
		case <-bound.C:
			return n
		}
	}
}
