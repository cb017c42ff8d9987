package failure

import (
	"cmp"
	"syscall"
	"time"
)

// Failure is one worker that failed, like ProcessFailure of torch 2.14
// (torch/distributed/elastic/multiprocessing/errors/__init__.py). The fields with a JSON key are those that nodes send
// each other; the node of the worker knows the others, too.
type Failure struct {
	Host       string         `json:"host"`  // where the worker ran
	Round      int            `json:"round"` // in which it ran
	GlobalRank int            `json:"rank"`
	LocalRank  int            `json:"local_rank"`
	PID        int            `json:"pid"`              // 0 if it could not be started
	ExitCode   int            `json:"code,omitempty"`   // 0 if a signal ended it
	Signal     syscall.Signal `json:"signal,omitempty"` // 0 if it exited
	// Stopped says that the worker was still running when its group was stopped. It had shown an error before.
	Stopped bool `json:"stopped,omitempty"`
	// Final says that the program could not be executed, for a reason that no further attempt on that node changes.
	Final bool `json:"final,omitempty"`
	// NoRestart says that the worker holds something on its node which the next one would need, so the job must not be
	// restarted.
	NoRestart bool `json:"no_restart,omitempty"`
	// Waited says that the worker only reports that it waited for a peer in vain. That peer may be alive.
	Waited bool `json:"waited,omitempty"`
	// Kind is the kind of the strongest evidence. Summary is the reason in one line.
	Kind    Kind   `json:"kind,omitempty"`
	Summary string `json:"summary,omitempty"`
	// ErrorFile and LogFile are paths on Host: the error file that the worker wrote, and the file that its stderr went
	// to. Each is empty if there is none.
	ErrorFile string `json:"error_file,omitempty"`
	LogFile   string `json:"log_file,omitempty"`
	// Text is the traceback of the error file, else the signal and the last lines of stderr.
	Text string `json:"text,omitempty"`

	// Time is when the worker failed, by this machine's clock. Clocks differ, so it is not sent.
	Time time.Time `json:"-"`
	// Findings is the evidence against the worker, strongest first. Without findings it is not to blame.
	Findings   []Finding `json:"-"`
	CoreDumped bool      `json:"-"`
	// ErrorFileProblem says why an error file could not be used. Message and RawErrorFile are the message and the
	// content of one that could.
	ErrorFileProblem, Message, RawErrorFile string `json:"-"`
	// Remote says that another node has sent the failure.
	Remote bool `json:"-"`
}

// ShellCode is the exit code as shells count it: 128+n for signal n.
func (f Failure) ShellCode() int {
	if f.Signal != 0 {
		return 128 + int(f.Signal)
	}
	return f.ExitCode
}

// CauseCode is the exit code with which a launcher ends if f is the root cause: at least 1. If the worker was stopped
// after an error of its own, the signal of the stop does not count.
func (f Failure) CauseCode() int {
	if f.Stopped {
		return max(1, f.ExitCode)
	}
	return max(1, f.ShellCode())
}

// PythonCode is the exit code as Python's multiprocessing and torchrun count it: -n for signal n.
func (f Failure) PythonCode() int {
	if f.Signal != 0 {
		return -int(f.Signal)
	}
	return f.ExitCode
}

// Compare orders failures, the likeliest root cause first: by grade, then by time, then by rank.
func Compare(f, g Failure) int {
	return cmp.Or(
		cmp.Compare(f.Kind.Grade(), g.Kind.Grade()),
		f.Time.Compare(g.Time),
		cmp.Compare(f.GlobalRank, g.GlobalRank),
	)
}

// Same reports whether f and g are about the same process. A container may reuse a pid in the next round.
func (f Failure) Same(g Failure) bool {
	return f.Host == g.Host && f.Round == g.Round && f.PID == g.PID && f.GlobalRank == g.GlobalRank &&
		f.LocalRank == g.LocalRank
}

// OnlyAsCause is [Kind.OnlyAsCause] of the failure's kind.
func (f Failure) OnlyAsCause() bool { return f.Kind.OnlyAsCause() }
