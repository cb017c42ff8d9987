package agent

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Failure is one worker that failed (seed 002, ProcessFailure).
type Failure struct {
	Host       string // where the worker ran
	Round      int    // in which it ran
	LocalRank  int
	GlobalRank int
	Exit       procs.Exit
	// Findings are the evidence against it, strongest first.
	Findings []evidence.Finding
	// Time is when the worker failed, as the strongest evidence says.
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
	// Stuck is how long the worker lived on after it had begun to write an error file, when the agent gave it up; 0 for
	// one that ended.
	Stuck time.Duration
	// Remote says that another node tells of its worker, with Text in place of error file and stderr.
	Remote bool
	// Text is what another node tells of its worker in place of error file and stderr; empty for this node's own.
	Text string
}

// Kind is that of the strongest evidence.
func (f Failure) Kind() evidence.Kind {
	switch {
	case len(f.Findings) > 0:
		return f.Findings[0].Kind
	case f.Exit.Signal != 0:
		return evidence.Killed
	default:
		return evidence.Exited
	}
}

// Summary says in one line why the worker failed.
func (f Failure) Summary() string {
	if len(f.Findings) == 0 {
		return f.Exit.String()
	}
	line := f.Exit.String()
	for _, x := range f.Findings {
		if first, _, _ := strings.Cut(strings.TrimSpace(x.Text), "\n"); first != "" {
			line = first
			break
		}
	}
	if f.Stuck > 0 && f.Error != nil {
		line = fmt.Sprintf("%s (and had not ended %v after it wrote its error file)", line, f.Stuck)
	}
	return line
}

// waited says that the worker only tells of having waited for a peer in vain.
func (f Failure) waited() bool {
	return f.Kind() == evidence.PeerLost && slices.ContainsFunc(f.Findings, evidence.Finding.Waited)
}

// onlyAsCause says that the worker is to blame, or has not failed at all.
func (f Failure) onlyAsCause() bool { return f.Kind().OnlyAsCause() }

// leftFile reports whether there is something to say of the worker's error file.
func (f Failure) leftFile() bool { return f.Error != nil || f.ErrorFileProblem != "" }

// compare orders failures by the evidence that they began it all, the likeliest first.
func (f Failure) compare(g Failure) int {
	return cmp.Or(
		cmp.Compare(f.Kind().Grade(), g.Kind().Grade()),
		f.Time.Compare(g.Time),
		cmp.Compare(f.GlobalRank, g.GlobalRank),
	)
}

// byThemselves returns the failures unless all are of workers that were stopped: those may have caused a failure, and where there is none they
// have not.
func byThemselves(failures map[int]Failure) map[int]Failure {
	for _, f := range failures {
		if !f.Exit.Stopped && !f.Exit.Success() || f.Kind() == evidence.ErrorFile {
			return failures
		}
	}
	return nil
}

// atFault returns the failures of a run that err has ended, none where that is a lost rendezvous and all have only lost their peers: what took the store has
// taken those, too.
func atFault(failures map[int]Failure, err error) map[int]Failure {
	root, known := RunResult{Failures: failures}.RootCause()
	if known && errors.Is(err, rdzv.ErrRendezvous) && (root.Kind() == evidence.PeerLost || root.onlyAsCause()) {
		return nil
	}
	return failures
}

// happened is the best guess at when the error of the file occurred; zero where it does not tell. Error files tell whole seconds; where the file
// was written within two of them, that tells more.
func (e *ErrorFile) happened() time.Time {
	if e.Timestamp.IsZero() {
		return e.Written
	}
	if late := e.Written.Sub(e.Timestamp); late >= 0 && late < 2*time.Second {
		return e.Written
	}
	return e.Timestamp
}
