package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/caller"
	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/exitcode"
	"github.com/elasticrun/elasticrun/internal/logging"
	"github.com/elasticrun/elasticrun/internal/records"
	"github.com/elasticrun/elasticrun/internal/status"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// The launcher's own exit codes. docs/exit-codes.md is the table for users.
const (
	exitUsage      = 2  // bad usage or configuration, or a port that another program holds
	exitInternal   = 70 // a defect of elasticrun
	exitStuck      = 71 // a process survives SIGKILL: it hangs in the kernel, or a debugger holds it
	exitPreflight  = 72 // this machine is not fit for the job
	exitFinished   = 73 // the run id belongs to a finished run: nothing was started
	exitOutput     = 74 // output was lost, and the console had no room to say so
	exitRendezvous = 75 // the rendezvous could not be formed or was lost, or a node was lost: worth a retry
	exitClosed     = 76 // somebody closed the run, for example with elasticrun stop
	exitPreempted  = 79 // the job was preempted: run it again. --preempt-exit-code replaces it
	exitHang       = 77 // the job made no progress, and --hang-action ended it
)

// ending is how the launcher ends.
type ending struct {
	code   int
	reason exitcode.Reason  // empty: success
	err    error            // the error; nil if a worker is the cause
	root   *failure.Failure // the root cause, if it is a worker
	note   string           // a hint for the user; may be empty
}

// conclude maps what a run returned to an ending. No other function decides exit codes.
func conclude(result agent.RunResult, err error) ending {
	var stopped *agent.SignalError
	var busy *rdzv.ListenError
	var bad *config.UsageError
	var stuck *procs.StuckError
	var unfit *agent.UnfitError
	lack, lacks := procs.AsResourceError(err)
	_, failed := result.RootCause()
	switch {
	case endedByPreemption(result, err):
		return ending{code: exitPreempted, reason: exitcode.ReasonPreempted, err: err}
	case errors.As(err, &stopped):
		return ending{code: 128 + int(stopped.Signal), reason: exitcode.ReasonSignal, err: err}
	case errors.As(err, new(*caller.GoneError)):
		return ending{code: 128 + int(syscall.SIGTERM), reason: exitcode.ReasonSignal, err: err}
	case errors.Is(err, errGuardGone):
		return ending{code: 128 + int(syscall.SIGKILL), reason: exitcode.ReasonSignal, err: err}
	case errors.As(err, &bad), errors.As(err, &busy), isMismatch(err):
		return ending{code: exitUsage, reason: exitcode.ReasonUsage, err: err}
	case errors.As(err, &unfit):
		return ending{code: exitPreflight, reason: exitcode.ReasonPreflight, err: err}
	case errors.As(err, new(*rounds.FinishedError)), errors.As(err, new(*status.StoppedLateError)):
		return ending{code: exitFinished, reason: exitcode.ReasonFinished, err: err}
	case hasEnded(err, rdzv.EndClosed):
		return ending{code: exitClosed, reason: exitcode.ReasonClosed, err: err}
	case hasEnded(err, rdzv.EndNodeLost):
		return ending{code: exitRendezvous, reason: exitcode.ReasonNodeLost, err: err}
	case errors.Is(err, rdzv.ErrRendezvous):
		return ending{code: exitRendezvous, reason: exitcode.ReasonRendezvous, err: err}
	case errors.As(err, &stuck) && failed: // the worker's failure explains more than its siblings that survive SIGKILL
		return blame(result, err)
	case stuck != nil:
		return ending{code: exitStuck, reason: exitcode.ReasonStuck, err: err}
	case lacks:
		return ending{code: exitPreflight, reason: exitcode.ReasonPreflight, err: lack}
	case err != nil:
		return ending{code: exitInternal, reason: exitcode.ReasonInternal, err: err}
	case !result.IsFailed() && result.NothingStarted != "":
		return ending{reason: exitcode.ReasonNothingStarted, err: errors.New(result.NothingStarted)}
	case !result.IsFailed():
		return ending{}
	}
	return blame(result, nil)
}

// hasEnded reports whether err says that the run has ended in that way.
func hasEnded(err error, ending rdzv.Ending) bool {
	end, ok := errors.AsType[*rdzv.EndedError](err)
	return ok && end.Outcome.Ending == ending
}

// endedByPreemption reports whether the job was preempted. Then a stop signal while the workers save changes nothing,
// and neither does the loss of the rendezvous, which may go with another node.
func endedByPreemption(result agent.RunResult, err error) bool {
	if hasEnded(err, rdzv.EndPreempted) {
		return true
	}
	otherwise := errors.As(err, new(*rdzv.EndedError)) || errors.Is(err, rdzv.ErrRefused)
	stopped := errors.As(err, new(*agent.SignalError)) || errors.Is(err, rdzv.ErrRendezvous)
	return result.Preempted && stopped && !otherwise
}

// isMismatch reports whether the rendezvous belongs to another job, or its parameters differ from this agent's. A retry
// would not help.
func isMismatch(err error) bool {
	var job *rounds.RefusedError
	var store *coord.RefusedError
	var unknownPeer *coord.DialError
	return errors.As(err, &job) || errors.As(err, &store) ||
		errors.As(err, &unknownPeer) && !errors.Is(err, coord.ErrUnavailable) && errors.Is(err, rdzv.ErrConnection)
}

// blame returns the ending that the root cause determines. It is the same on every node of the job.
func blame(result agent.RunResult, err error) ending {
	root, known := result.RootCause()
	if !known {
		return ending{code: 1, reason: exitcode.ReasonWorkerFailed, err: err}
	}
	// The code of a failure is at least 1, even if another node reports it with code 0.
	e := ending{
		code: root.CauseCode(), reason: exitcode.ReasonWorkerFailed, err: err, root: &root,
		note: result.Note(),
	}
	switch {
	case root.Kind == failure.Hang:
		e.code, e.reason = exitHang, exitcode.ReasonHang
	case root.Stopped:
	case root.Signal != 0:
		e.reason = exitcode.ReasonWorkerKilled
	}
	if result.Rule != "" {
		e.reason = exitcode.Reason(result.Rule)
	}
	return e
}

// mapped returns the ending with the exit code that --exit-code-map gives it.
func (e ending) mapped(codes exitcode.Map) ending {
	if e.reason != "" {
		e.code = codes.Apply(e.code, e.reason)
	}
	return e
}

// problem returns the error in one line; empty if a worker is the cause.
func (e ending) problem() string {
	if e.err == nil {
		return ""
	}
	return logging.Line(e.err.Error()) // errors.Join separates errors by newlines
}

// record returns the ending in the form of the report and the error file.
func (e ending) record() records.Ending {
	return records.Ending{Code: e.code, Reason: e.reason, Problem: e.problem(), Root: e.root}
}

// indent goes before a command line that the user can type instead.
const indent = "    "

// text returns the launcher's last lines.
func (e ending) text() (text string) {
	if e.err != nil {
		text = "elasticrun: " + e.problem() + "\n"
	}
	if bad, ok := errors.AsType[*config.UsageError](e.err); ok {
		for _, line := range bad.Try {
			text += indent + line + "\n"
		}
	}
	if e.reason != "" {
		text += lastLine(e) + "\n"
	}
	return text
}

// fail prints how the launcher ends and returns its exit code. It is for a launch that came to no report, so it writes
// a short one for the caller.
func fail(e ending) int {
	if e.reason != "" {
		records.WriteForCaller(report.Report{Version: version}, e.record())
	}
	_, _ = io.WriteString(os.Stderr, e.text())
	return e.code
}

// lastLine returns the last line on stderr of a launch that failed or started nothing. It is for programs: a worker may
// exit with any of the launcher's codes, and the reason tells the two apart.
func lastLine(e ending) string {
	line := fmt.Sprintf("elasticrun: exit_code=%d reason=%s", e.code, e.reason)
	if e.root != nil {
		line += fmt.Sprintf(" rank=%d local_rank=%d summary=%q", e.root.GlobalRank, e.root.LocalRank,
			report.Head(e.root.Summary, report.MaxSummary))
	}
	if e.note != "" {
		line += fmt.Sprintf(" note=%q", e.note)
	}
	return line
}
