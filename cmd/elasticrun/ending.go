package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/logging"
	"github.com/elasticrun/elasticrun/internal/records"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// Exit codes of the launcher's own; docs/exit-codes.md is the table for users.
const (
	exitUsage      = 2  // bad usage or configuration, or a port held by a stranger
	exitInternal   = 70 // a defect of elasticrun's own
	exitStuck      = 71 // a process in the kernel's hands outlives SIGKILL: this machine is ill
	exitPreflight  = 72 // this machine is not fit for the job
	exitFinished   = 73 // the run id is that of a finished run: nothing was started
	exitOutput     = 74 // output was lost, and nobody could be told
	exitRendezvous = 75 // the rendezvous could not be formed or was lost: worth a retry
)

// ending is how the launcher ends.
type ending struct {
	code   int
	reason config.Reason
	err    error          // what to say, where that is one line
	root   *agent.Failure // the root cause, where a worker is
	note   string         // what to think of it; empty for nothing
}

// conclude maps what a run returned to an ending. It is the one place that
// decides exit codes.
func conclude(result agent.RunResult, err error) ending {
	var told *agent.SignalError
	var busy *rdzv.ListenError
	var bad *config.UsageError
	var stuck *procs.StuckError
	var unfit *agent.UnfitError
	lack, lacks := procs.AsResourceError(err)
	_, failed := result.RootCause()
	switch {
	case errors.As(err, &told):
		return ending{code: 128 + int(told.Signal), reason: config.ReasonSignal, err: err}
	case errors.Is(err, errGuardGone):
		return ending{code: 128 + int(syscall.SIGKILL), reason: config.ReasonSignal, err: err}
	case errors.As(err, &bad), errors.As(err, &busy), misplaced(err):
		return ending{code: exitUsage, reason: config.ReasonUsage, err: err}
	case errors.As(err, &unfit):
		return ending{code: exitPreflight, reason: config.ReasonPreflight, err: err}
	case errors.As(err, new(*elastic.FinishedError)):
		return ending{code: exitFinished, reason: config.ReasonFinished, err: err}
	case errors.Is(err, rdzv.ErrRendezvous):
		return ending{code: exitRendezvous, reason: config.ReasonRendezvous, err: err}
	case errors.As(err, &stuck) && failed: // its siblings do not die, which is no defect
		return blame(result, err)
	case stuck != nil:
		return ending{code: exitStuck, reason: config.ReasonStuck, err: err}
	case lacks:
		return ending{code: exitPreflight, reason: config.ReasonPreflight, err: lack}
	case err != nil:
		return ending{code: exitInternal, reason: config.ReasonInternal, err: err}
	case !result.IsFailed() && result.NothingStarted != "":
		return ending{reason: config.ReasonNothingStarted, err: errors.New(result.NothingStarted)}
	case !result.IsFailed():
		return ending{}
	}
	return blame(result, nil)
}

// misplaced reports whether this agent was sent to a rendezvous that is not its own, or with parameters that are not the job's: to try
// again would not help.
func misplaced(err error) bool {
	var job *elastic.RefusedError
	var store *coord.RefusedError
	var stranger *coord.DialError
	return errors.As(err, &job) || errors.As(err, &store) ||
		errors.As(err, &stranger) && !errors.Is(err, coord.ErrUnavailable) && errors.Is(err, rdzv.ErrConnection)
}

// blame ends by the root cause, which is the same on every node of the job.
func blame(result agent.RunResult, err error) ending {
	root, known := result.RootCause()
	if !known {
		return ending{code: 1, reason: config.ReasonWorkerFailed, err: err}
	}
	// A failure is never told as a success, whatever another node says of it.
	e := ending{code: max(1, root.Exit.ShellCode()), reason: config.ReasonWorkerFailed, err: err, root: &root, note: result.Note()}
	switch {
	case root.Exit.Stopped: // it was failing, and then the launcher was quicker than its own end
		e.code = max(1, root.Exit.Code)
	case root.Exit.Signal != 0:
		e.reason = config.ReasonWorkerKilled
	}
	return e
}

// mapped is the ending with the exit code that the user wants for it.
func (e ending) mapped(codes config.ExitCodeMap) ending {
	if e.reason != "" {
		e.code = codes.Apply(e.code, e.reason)
	}
	return e
}

// problem is what there is to say, in one line; empty where a worker is the cause.
func (e ending) problem() string {
	if e.err == nil {
		return ""
	}
	return logging.Line(e.err.Error()) // joined errors have lines
}

// record is the ending as the report and the error file have it.
func (e ending) record() records.Ending {
	return records.Ending{Code: e.code, Reason: e.reason, Problem: e.problem(), Root: e.root}
}

// text is what the launcher says last of how it ends.
func (e ending) text() (text string) {
	if e.err != nil {
		text = "elasticrun: " + e.problem() + "\n"
	}
	if e.reason != "" {
		text += lastLine(e) + "\n"
	}
	return text
}

// fail says how the launcher ends and returns its exit code.
func fail(e ending) int {
	_, _ = io.WriteString(os.Stderr, e.text())
	return e.code
}

// lastLine is the last line on stderr of a launch that did not succeed, or started nothing. It is for
// machines: a worker may have used any exit code itself.
func lastLine(e ending) string {
	line := fmt.Sprintf("elasticrun: exit_code=%d reason=%s", e.code, e.reason)
	if e.root != nil {
		line += fmt.Sprintf(" rank=%d local_rank=%d summary=%q", e.root.GlobalRank, e.root.LocalRank,
			report.Begin(e.root.Summary(), report.MaxSummary))
	}
	if e.note != "" {
		line += fmt.Sprintf(" note=%q", e.note)
	}
	return line
}
