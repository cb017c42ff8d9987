package agent

import (
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// The longest summary, and the longest path, that other nodes are told, in bytes.
const (
	maxSummary = 512
	maxPath    = 1 << 10
)

// forOthers is the failure as other nodes are told of it.
func (f Failure) forOthers(now time.Time) rdzv.Failure {
	path := func(p string) string {
		if len(p) > maxPath {
			return ""
		}
		return strings.ToValidUTF8(p, "?")
	}
	told := rdzv.Failure{
		Host: f.Host, Round: f.Round, GlobalRank: f.GlobalRank, LocalRank: f.LocalRank, PID: f.Exit.PID,
		ExitCode: f.Exit.Code, Signal: f.Exit.Signal, Final: f.Exit.Unexecutable(),
		Grade: f.Kind().Grade(), Age: max(0, now.Sub(f.Time)), Stopped: f.Exit.Stopped,
		Waited: f.waited(), Absent: f.Kind() == evidence.Absent,
		Kind: string(f.Kind()), Summary: report.Begin(f.Summary(), maxSummary), LogFile: path(f.LogFile),
		Text: report.End(traceback(f), rdzv.MaxFailureText),
	}
	if f.leftFile() {
		told.ErrorFile = path(f.ErrorFile)
	}
	return told
}

// likeliest is the one of a node's failures that other nodes are told of; nil where there is none.
func likeliest(failures map[int]Failure) *rdzv.Failure {
	all := RunResult{Failures: failures}.ordered()
	if len(all) == 0 {
		return nil
	}
	f := all[0].forOthers(time.Now())
	f.OnlyStopped = byThemselves(failures) == nil
	return &f
}

// fromOther is a failure as another node tells of it.
func fromOther(told rdzv.Failure, now time.Time) Failure {
	f := Failure{
		Remote: true, Host: told.Host, Round: told.Round, GlobalRank: told.GlobalRank, LocalRank: told.LocalRank,
		Exit: procs.Exit{
			LocalRank: told.LocalRank, PID: told.PID, Code: told.ExitCode, Signal: told.Signal, Stopped: told.Stopped,
		},
		Time: now.Add(-told.Age), ErrorFile: told.ErrorFile, LogFile: told.LogFile, Text: told.Text,
	}
	if told.Kind != "" {
		f.Findings = []evidence.Finding{{Kind: evidence.Kind(told.Kind), Time: f.Time, Text: told.Summary}}
	}
	return f
}

func fromOthers(told []rdzv.Failure, now time.Time) (all []Failure) {
	for _, t := range told {
		all = append(all, fromOther(t, now))
	}
	return all
}

// rootCause finds the failure that ended the job among this node's own, of which more is known, or makes it from what
// the rendezvous tells. It is nil where that tells nothing.
func rootCause(told *rdzv.Failure, own map[int]Failure, now time.Time) *Failure {
	if told == nil {
		return nil
	}
	there := fromOther(*told, now)
	for _, f := range own {
		if f.same(there) {
			return &f
		}
	}
	return &there
}

// same reports whether f and g are about the same process. A container may give the same pid to the next one.
func (f Failure) same(g Failure) bool {
	return f.Host == g.Host && f.Round == g.Round && f.Exit.PID == g.Exit.PID && f.GlobalRank == g.GlobalRank && f.LocalRank == g.LocalRank
}
