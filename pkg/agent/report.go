package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/procs"
)

// reportWidth is the longest rule of the report, in columns.
const reportWidth = 60

// Report describes a failed run in torchrun's layout (spec: ChildFailedError),
// with the tail of the root cause's stderr where there is no error file, and
// with log paths. A root cause on another node is reported as that node tells it.
func Report(name string, r RunResult) string {
	failures := r.ordered()
	if len(failures) == 0 {
		return ""
	}
	title := name + " FAILED"
	others := "  <NO_OTHER_FAILURES>"
	if len(failures) > 1 {
		var entries []string
		for i, f := range failures[1:] {
			entries = append(entries, entry(i+1, f))
		}
		others = strings.Join(entries, "\n")
	}
	root := "Root Cause (first observed failure):\n" + entry(0, failures[0])

	width := len(title)
	for line := range strings.Lines(others + "\n" + root) {
		width = max(width, len(strings.TrimRight(line, "\n")))
	}
	width = min(width, reportWidth)
	double, single := strings.Repeat("=", width), strings.Repeat("-", width)
	return strings.Join([]string{double, title, single, "Failures:", others, single, root, double, ""}, "\n")
}

// entry describes one failure; the root cause has index 0.
func entry(index int, f Failure) string {
	errorFile := "<N/A>"
	if f.Error != nil || f.ErrorFileProblem != "" {
		errorFile = f.ErrorFile
	}
	lines := []string{
		fmt.Sprintf("[%d]:", index),
		"  time      : " + f.Time.Format("2006-01-02_15:04:05"),
		"  host      : " + f.Host,
		fmt.Sprintf("  rank      : %d (local_rank: %d)", f.GlobalRank, f.LocalRank),
		fmt.Sprintf("  exitcode  : %d (pid: %d)", f.Exit.PythonCode(), f.Exit.PID),
		"  error_file: " + errorFile,
		"  traceback : " + indent(traceback(f)),
	}
	if f.LogFile != "" {
		lines = append(lines, "  log       : "+f.LogFile)
	}
	return strings.Join(lines, "\n")
}

// traceback says what is known about why: what another node tells, the error file's traceback or message,
// else the signal or the failed start, and the tail of stderr.
func traceback(f Failure) string {
	if f.Text != "" {
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

// indent keeps continuation lines inside their entry.
func indent(s string) string { return strings.ReplaceAll(s, "\n", "\n  ") }
