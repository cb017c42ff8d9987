package agent

import (
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// attemptEvidence is what the agent collects about one start of the workers, in case the start fails.
type attemptEvidence struct {
	started  time.Time
	memory   evidence.Memory     // before the start
	scanners []*evidence.Scanner // of the stderrs, by local rank
	states   map[int]byte        // of the workers' processes before the stop, by local rank
	timedOut bool                // a read has timed out: disks are not read again
}

// beginEvidence begins to collect evidence. Call it before the workers of specs are started; it attaches the scanners.
func (a *Agent) beginEvidence(specs []procs.Spec) {
	a.evidence = attemptEvidence{started: time.Now(), scanners: make([]*evidence.Scanner, len(specs))}
	if a.opts.Kernel != nil {
		a.opts.Kernel.Mark()
		a.evidence.memory = a.opts.Kernel.Memory()
	}
	for i := range specs {
		scanner := new(evidence.Scanner)
		specs[i].Stderr.AddScanner(scanner)
		a.evidence.scanners[specs[i].LocalRank] = scanner
	}
}

// notify makes all scanners send new findings to c; see evidence.Scanner.Notify.
func (e attemptEvidence) notify(c chan<- struct{}) {
	for _, scanner := range e.scanners {
		scanner.Notify(c)
	}
}

// recordStates records the process states of the workers. Call it before the running ones are stopped.
func (a *Agent) recordStates(p Processes) {
	a.evidence.states = make(map[int]byte)
	if a.opts.Kernel == nil {
		return
	}
	for rank, pid := range p.PIDs() {
		a.evidence.states[rank] = a.opts.Kernel.State(pid)
	}
}

// query says what a postmortem asks about workers that have ended. The zero value asks about workers that the agent has
// not stopped.
type query struct {
	stopBegan time.Time // of the workers that were stopped
	kernel    bool      // ask the kernel, too
	// stoppedByPeer says that the workers were stopped because one failed on another node, and peerWaited that this one
	// only reports that it waited for a peer in vain.
	stoppedByPeer, peerWaited bool
}

// queryAfterHalt returns the query for a round that was stopped because of another node.
func (a *Agent) queryAfterHalt() query {
	if a.halt == nil {
		return query{}
	}
	waited, failed := strings.HasPrefix(a.halt.Why, rdzv.WhyWaited), strings.HasPrefix(a.halt.Why, rdzv.WhyFailed)
	return query{stopBegan: time.Now(), stoppedByPeer: waited || failed, peerWaited: waited}
}

// collectSucceeded collects the evidence against workers that have all exited with 0, in a round that is stopped all
// the same.
func (a *Agent) collectSucceeded() {
	q := a.queryAfterHalt()
	if !q.stoppedByPeer || len(a.succeeded) == 0 {
		return
	}
	a.failures = a.collectFailures(a.shown, nil, q)
}

// collectFailures finds out why the workers of a stopped group have failed. taken are the exits that were received
// before. The output of the group is complete.
func (a *Agent) collectFailures(p Processes, taken []procs.Exit, q query) map[int]failure.Failure {
	exits := slices.Concat(a.succeeded, taken)
	for len(p.Exits()) > 0 {
		x := <-p.Exits()
		a.emitExit(x)
		if !a.hung.is(x.LocalRank) { // the hung worker ended only because it was stopped
			exits = append(exits, x)
		}
	}
	failures := make(map[int]failure.Failure)
	for _, f := range withoutBystanders(a.examineExits(p, exits, q), q.peerWaited) {
		failures[f.GlobalRank] = f
	}
	return failures
}

// withoutBystanders drops failures without findings, and those of workers that were merely absent. It keeps absent
// workers if others, here or elsewhere, have waited in vain. A paused worker explains the silence of all others. If
// more workers are silent than have waited, nobody knows which was first.
func withoutBystanders(all []failure.Failure, waitedElsewhere bool) (kept []failure.Failure) {
	paused, absent, waited := 0, 0, 0
	for _, f := range all {
		if len(f.Findings) == 0 {
			continue
		}
		switch {
		case f.Kind == failure.Paused:
			paused++
		case f.Kind == failure.Absent:
			absent++
		case f.Waited:
			waited++
		}
	}
	for _, f := range all {
		if len(f.Findings) == 0 || f.Kind == failure.Absent && (paused > 0 || !waitedElsewhere && absent > waited) {
			continue
		}
		kept = append(kept, f)
	}
	return kept
}

// readTimeout bounds how long it may take to read the evidence. A disk that does not answer, as that of a lost file
// server, must not delay the job.
const readTimeout = 2 * time.Second

// examineExits finds out how and why workers have ended. A worker without findings is not to blame. Evidence that
// cannot be read in time is left out, with a warning.
func (a *Agent) examineExits(p Processes, exits []procs.Exit, q query) []failure.Failure {
	if len(exits) == 0 {
		return nil
	}
	pm := a.newPostmortem(p, q.stopBegan)
	found := make([]workerEvidence, len(exits))
	if !a.evidence.timedOut {
		if n := readInTime(pm, exits, found, q.kernel && a.opts.Kernel != nil); n < len(exits) {
			a.evidence.timedOut = true
			a.log.Warn().Str("missing", pm.reading()).Str("after", seconds.Format(readTimeout)).Msg("evidence is incomplete")
		}
	}
	all := make([]failure.Failure, len(exits))
	for i, x := range exits {
		all[i] = pm.failure(x, found[i])
	}
	if pm.peersLost = peersLost(all, q); pm.peersLost.IsZero() {
		return all
	}
	for i, x := range exits {
		if len(all[i].Findings) == 0 { // it may be the lost peer
			all[i] = pm.failure(x, found[i])
		}
	}
	return all
}

// peersLost returns when the first worker lost a peer, as far as those that ended by themselves or other nodes report;
// zero if none has.
func peersLost(all []failure.Failure, q query) (first time.Time) {
	ended := slices.DeleteFunc(slices.Clone(all), func(f failure.Failure) bool { return f.Stopped })
	if first = firstLoss(ended).Time; first.IsZero() && q.stoppedByPeer {
		first = q.stopBegan
	}
	return first
}

// readInTime reads the evidence of exits into found, in order, and returns how many it read in time. If those are not
// all, the reading goroutine is abandoned, because nothing ends a wait for a disk. It reads nothing that others write.
func readInTime(pm *postmortem, exits []procs.Exit, found []workerEvidence, askKernel bool) (n int) {
	read := make(chan workerEvidence, len(exits))
	go func() {
		defer close(read)
		var kernel *evidence.KernelReport
		if askKernel {
			kernel = pm.readKernel()
		}
		for _, x := range exits {
			read <- pm.read(x, kernel)
		}
	}()
	timer := time.NewTimer(readTimeout)
	defer timer.Stop()
	for {
		select {
		case e, more := <-read:
			if !more {
				return n
			}
			found[n] = e
			n++
		case <-timer.C:
			return n
		}
	}
}
