package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/report"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// SignalError is the cause of the context of [Agent.Run] when the launcher received a stop signal. The workers get the
// same signal.
type SignalError struct {
	Signal syscall.Signal
	// From says for people where it came from, such as "from pid 4711 (slurmstepd), user root"; empty if not known.
	From string
}

func (e *SignalError) Error() string {
	return strings.TrimSpace("received " + procs.SignalName(e.Signal) + " " + e.From)
}

// Agent runs one worker group. Make it with [New] and call Run once.
type Agent struct {
	opts     Options
	hostname string
	log      zerolog.Logger

	// The fields below belong to the goroutine in Run.

	began        time.Time
	restarts     int // charged to the job, as of the last round
	state        WorkerState
	round        *rdzv.Round // the last round; nil before the first
	workers      []Worker    // of the last round, by local rank; written only before they run
	roundState               // of that round
	processState             // of the last start
	history      history
	devices      *deviceWait    // what the next start waits for; nil before the first start
	deviceless   bool           // restarts do not wait for devices, because their state is not known
	unwatchable  bool           // error files cannot be watched
	warnedFell   bool           // it was logged that steps go down
	foreignTimer bool           // a timer of a process that is no worker was logged
	closing      sync.WaitGroup // counts watches that are being closed
	pings        chan struct{}  // unbuffered: Answers sends, and the goroutine in Run receives while it watches workers
	preemptState

	// The agent's rank and the number of agents, since the ranks of a round were first assigned; -1 before.
	groupRank, groupWorldSize int

	// Run writes the fields below under mu; others read them under mu.

	mu         sync.Mutex
	shown      Processes // the last start, running or not; nil before it
	shownGroup WorkerGroup
}

// roundState is what has happened on this node in the current round.
type roundState struct {
	membership bool       // no charged restart began the round
	halt       *rdzv.Stop // why its workers must stop; nil while they may run
	running    int        // workers that have not exited
	succeeded  []procs.Exit
	done       bool          // all workers have exited with 0
	summary    workerSummary // once the workers have ended
	alone      bool          // this node ends with success without knowing how the others end
	hung       *hungWorker   // nil for none
	failedAt   time.Time     // when the first worker failed; zero for none
	failures   map[int]failure.Failure
}

// processState is the last start of the workers.
type processState struct {
	processes Processes            // nil while none run
	unread    Processes            // stopped, with output that the console has not taken yet; nil for none
	files     []workerlog.LogFiles // by local rank
	tree      map[int]bool         // pids of the group that was stopped last, with descendants
	evidence  attemptEvidence
	watched   []WatchedWorker      // without pids; nil without Options.Liveness
	steps     *stepHistory         // nil without Options.Liveness
	expired   map[int]expiredTimer // by local rank
}

// New validates opts and returns an agent.
func New(opts Options) (*Agent, error) {
	opts.Spec.Role = cmp.Or(opts.Spec.Role, DefaultRole)
	if opts.LogFolders == nil {
		opts.LogFolders = new(workerlog.LogDir)
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find the host name: %w", err)
	}
	a := &Agent{
		opts: opts, hostname: host, log: opts.Logger, state: Init, groupRank: -1, groupWorldSize: -1,
		pings: make(chan struct{}), preemptState: newPreemptState(), workers: unassignedWorkers(opts.Spec.LocalWorldSize),
	}
	a.showGroup()
	return a, nil
}

// LastLines returns the last line that each worker of the newest start has written, by local rank, as far as the
// launcher sees it. It may be called at any time. It may wait for a disk.
func (a *Agent) LastLines() map[int]string {
	a.mu.Lock()
	p := a.shown
	a.mu.Unlock()
	if p == nil {
		return nil
	}
	last := make(map[int]string)
	for rank := range a.opts.Spec.LocalWorldSize {
		if line := p.LastLine(rank); line != "" {
			last[rank] = line
		}
	}
	return last
}

// Answers reports whether the goroutine in Run answers before ctx ends. While workers run it does at once, unless it
// hangs. It does not while it waits for a rendezvous or for workers that are being stopped. Answers may be called at
// any time.
func (a *Agent) Answers(ctx context.Context) bool {
	select {
	case a.pings <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// Run runs the worker group until the job has succeeded or failed, and returns the result.
//
// If ctx ends, Run stops the workers and returns an error that wraps the context's cause. With a [*SignalError] the
// workers get that signal and the shutdown timeout, else SIGKILL.
//
// Any other error says what went wrong, and leaves the group in a state:
//
//	Stopped  the rendezvous could not be formed or was lost ([rdzv.ErrRendezvous])
//	Stopped  this machine is not fit ([*UnfitError])
//	Unknown  a process does not die ([*procs.StuckError]), a log folder could not be written, or the agent has a defect
//
// With an error, the result holds only this node's failures of the last round.
//
// When Run returns, no worker is left except those that the error names.
func (a *Agent) Run(ctx context.Context) (RunResult, error) {
	a.began = time.Now()
	defer a.closing.Wait()
	stopFollowing := a.followPreemption(ctx)
	defer stopFollowing()
	result, err := a.loop(ctx)
	took := time.Since(a.began)
	if err != nil {
		a.opts.Rendezvous.Leave()
		if p := a.processes; p != nil {
			a.emit(events.Event{Kind: events.KindStop, Why: report.Head(err.Error(), maxEventText)})
			err = errors.Join(err, a.stop(ctx, a.stopPolicy(ctx)))
			a.emitRemainingExits(p)
		}
	}
	a.drain(ctx, err == nil && result.State == Succeeded, err)
	if err != nil {
		if a.state != Unknown {
			err = errors.Join(err, a.setState(stateAfter(err)))
		}
		a.history.end(endAfter(err), err.Error(), nil)
		a.emitRun(took, err)
		result := RunResult{
			State: a.state, Failures: countable(a.failures, err), Restarts: a.restarts,
			Preempted: a.isPreempted(), Used: a.used(),
		}
		if end, ok := errors.AsType[*rdzv.EndedError](err); ok {
			result.ClosedBy = end.Outcome.ClosedBy
		}
		return result, err
	}
	a.emitResults(result)
	a.emitRun(took, nil)
	result.Used = a.used()
	return result, nil
}

// used returns how the workers of the job have used their time; nil if this node is not the only one and does not know
// how the job has ended.
func (a *Agent) used() *goodput.Goodput {
	used, final := a.opts.Rendezvous.Used()
	if final || a.round != nil && a.round.WorldSize == 1 {
		return used
	}
	return nil
}

// setState changes the state of the group. A transition that is not allowed leaves the group Unknown.
func (a *Agent) setState(to WorkerState) error {
	var err error
	a.state, err = next(a.state, to)
	a.showGroup()
	return err
}
