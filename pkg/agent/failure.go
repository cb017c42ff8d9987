package agent

import (
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
)

// Failure is one worker that failed (seed 002, ProcessFailure).
type Failure struct {
	Host       string // where the worker ran
	LocalRank  int
	GlobalRank int
	Exit       procs.Exit
	// Time is when the worker failed: as its error file says, else when the
	// agent saw its exit.
	Time time.Time
	// ErrorFile is where the worker's error file is; Error its content, nil
	// where the worker wrote none.
	ErrorFile string
	Error     *ErrorFile
	// ErrorFileProblem says why an error file that exists could not be used.
	ErrorFileProblem string
	// StderrTail holds the last lines of the worker's stderr.
	StderrTail []string
	// LogFile is the file its stderr went to; empty where it went to none.
	LogFile string
	// Text is what another node tells of its worker in place of error file and stderr; empty for this node's own.
	Text string
}

// Grades of evidence against a worker, strongest first.
const (
	crashed    = iota // killed by a signal the agent did not send
	ownFault          // failed by itself
	peerReport        // reports that a peer is gone
)

func (f Failure) suspicion() int {
	switch {
	case f.blamesPeer() && (f.Exit.Signal == 0 || f.Exit.Signal == syscall.SIGABRT): // NCCL's watchdog aborts
		return peerReport
	case f.Exit.Signal != 0:
		return crashed
	default:
		return ownFault
	}
}

// happened is the best guess at when the worker failed. Error files tell whole
// seconds; where the file was written within two of them, that tells more.
func (f Failure) happened() time.Time {
	if f.Error == nil || f.Error.Timestamp.IsZero() {
		return f.Exit.At
	}
	if late := f.Error.Written.Sub(f.Error.Timestamp); late >= 0 && late < 2*time.Second {
		return f.Error.Written
	}
	return f.Error.Timestamp
}

// peerErrors matches what gloo, NCCL and the store say in a process whose peer
// has gone.
var peerErrors = regexp.MustCompile(`(?i)connection (closed|reset) by peer|connection refused|broken pipe|` +
	`remote (error|process exited)|ncclRemoteError|socket timeout|collective operation timeout|watchdog.*(timeout|exception)|` +
	`store.*timed? ?out`)

// blamesPeer reports whether the worker's last error is about a peer.
func (f Failure) blamesPeer() bool {
	if f.Error != nil {
		return peerErrors.MatchString(f.Error.Message)
	}
	for _, line := range slices.Backward(f.StderrTail) {
		if strings.TrimSpace(line) != "" && peerErrors.MatchString(line) {
			return true
		}
		if exceptionLine.MatchString(line) {
			return false
		}
	}
	return false
}

// exceptionLine matches the last line of a Python traceback. An interrupt is how
// Python reacts to a signal, not a fault.
var exceptionLine = regexp.MustCompile(`^[A-Za-z_][\w.]*(Error|Exception|Exit)\b`)

// hasOwnError reports whether the worker left an error of its own.
func (f Failure) hasOwnError() bool {
	if f.blamesPeer() {
		return false
	}
	return f.Error != nil || slices.ContainsFunc(f.StderrTail, exceptionLine.MatchString)
}

// isVictim reports whether a worker's end is the launcher's own doing: it was
// running when the stop began, and then died of a signal that the stop sends, or
// reacted to it without leaving an error of its own. One that had written an error
// file by then was failing already, and was only slow to end.
func (f Failure) isVictim(stop syscall.Signal, began time.Time) bool {
	switch {
	case !f.Exit.Stopped:
		return false
	case f.Error != nil && f.Error.Written.Before(began):
		return f.blamesPeer()
	case f.Exit.Signal == stop || f.Exit.Signal == syscall.SIGKILL:
		return true
	default:
		return !f.hasOwnError()
	}
}
