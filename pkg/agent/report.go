package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// Report returns what the agent knows of a run that has ended with r: the rest is the launcher's. Call it after Run.
func (a *Agent) Report(r RunResult) report.Report {
	out := report.Report{
		Name: a.opts.Spec.DisplayName(), Host: a.hostname, RunID: a.opts.Rendezvous.RunID(),
		Note: r.Note(), Restarts: r.Restarts, Rounds: a.history.rounds, RoundCount: a.history.count,
	}
	if last := a.history.last(); last != nil {
		out.NodeRank, out.Round = &last.NodeRank, &last.Number
	}
	for _, round := range a.history.rounds {
		if round.LogDir != "" {
			out.Attempts = append(out.Attempts, round.LogDir)
		}
	}
	for i, f := range r.ordered() {
		told := f.report()
		if i == 0 {
			out.RootCause = &told
			continue
		}
		if f.Remote {
			out.OtherNodes = append(out.OtherNodes, told)
		} else {
			out.Failures = append(out.Failures, told)
		}
	}
	return out
}

// report is the failure as reports have it.
func (f Failure) report() report.Failure {
	out := report.Failure{
		Host: f.Host, Rank: f.GlobalRank, LocalRank: f.LocalRank, PID: f.Exit.PID, Time: report.Time{Time: f.Time},
		ExitCode: f.Exit.ShellCode(), PythonCode: f.Exit.PythonCode(), CoreDumped: f.Exit.CoreDumped,
		Kind: string(f.Kind()), Summary: f.Summary(), ErrorFileProblem: f.ErrorFileProblem, LogFile: f.LogFile, Text: traceback(f),
	}
	if f.Exit.Signal != 0 {
		out.Signal = procs.SignalName(f.Exit.Signal)
	}
	if f.Error != nil {
		out.Message = f.Error.Message
	}
	if f.leftFile() || f.Remote {
		out.ErrorFile = f.ErrorFile
	}
	for _, e := range f.Findings {
		out.Findings = append(out.Findings, report.Finding{Kind: string(e.Kind), Time: report.Time{Time: e.Time}, Text: e.Text})
	}
	return out
}

// traceback says what is known about why: what another node tells, the error file's traceback or message,
// else the signal or the failed start, and the tail of stderr.
func traceback(f Failure) string {
	if f.Remote || f.Text != "" {
		return f.Text
	}
	if f.Error != nil {
		if f.Error.CallStack != "" {
			return strings.TrimRight(f.Error.CallStack, "\n")
		}
		return f.Error.Message
	}
	var parts []string
	switch {
	case f.Exit.StartErr != nil:
		parts = append(parts, f.Exit.String())
	case f.Exit.Signal != 0:
		parts = append(parts, fmt.Sprintf("Signal %d (%s) received by PID %d",
			int(f.Exit.Signal), procs.SignalName(f.Exit.Signal), f.Exit.PID))
		if s := f.Summary(); s != f.Exit.String() {
			parts = append(parts, s)
		}
	}
	if f.ErrorFileProblem != "" {
		parts = append(parts, f.ErrorFileProblem)
	}
	if tail := trimBlank(f.StderrTail); len(tail) > 0 {
		parts = append(parts, "last lines of stderr:")
		for _, line := range tail {
			parts = append(parts, "  "+line)
		}
	}
	if len(parts) == 0 {
		return "<none: the worker wrote nothing to stderr and no error file>"
	}
	return strings.Join(parts, "\n")
}

// trimBlank drops blank lines at both ends.
func trimBlank(lines []string) []string {
	blank := func(s string) bool { return strings.TrimSpace(s) == "" }
	for len(lines) > 0 && blank(lines[0]) {
		lines = lines[1:]
	}
	for len(lines) > 0 && blank(lines[len(lines)-1]) {
		lines = lines[:len(lines)-1]
	}
	return slices.Clone(lines)
}
