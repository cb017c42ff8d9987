package agent

import (
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// Report returns what the agent knows about a run that ended with r. The launcher adds the rest. Call Report after Run.
func (a *Agent) Report(r RunResult) report.Report {
	out := report.Report{
		Name: a.opts.Spec.DisplayName(), Host: a.hostname, RunID: a.opts.Rendezvous.RunID(),
		Note: r.Note(), OthersUnknown: r.OthersUnknown, ClosedBy: r.ClosedBy, Restarts: r.Restarts,
		Goodput: r.Used, NoRestart: r.RuleText,
		Rounds: a.history.rounds, RoundCount: a.history.count,
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
		view := reported(f)
		switch {
		case i == 0:
			out.RootCause = &view
		case f.Remote:
			out.OtherNodes = append(out.OtherNodes, view)
		default:
			out.Failures = append(out.Failures, view)
		}
	}
	return out
}

// reported returns f in the form of reports.
func reported(f failure.Failure) report.Failure {
	out := report.Failure{
		Host: f.Host, Rank: f.GlobalRank, LocalRank: f.LocalRank, PID: f.PID, Time: report.Time{Time: f.Time},
		ExitCode: f.ShellCode(), PythonCode: f.PythonCode(), CoreDumped: f.CoreDumped,
		Kind: string(f.Kind), Summary: f.Summary, ErrorFile: f.ErrorFile, ErrorFileProblem: f.ErrorFileProblem,
		Message: f.Message, LogFile: f.LogFile, Text: f.Text,
	}
	if f.Signal != 0 {
		out.Signal = procs.SignalName(f.Signal)
	}
	for _, x := range f.Findings {
		out.Findings = append(out.Findings, report.Finding{
			Kind: string(x.Kind), Time: report.Time{Time: x.Time},
			Text: x.Text,
		})
	}
	return out
}
