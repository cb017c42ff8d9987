package records

import (
	"fmt"
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// hint returns one line about what to try next after a failure on this node, or "". It follows only from the report's
// root cause, the environment and files.
func (j job) hint(root *report.Failure) string {
	if j.python != "" {
		if text := j.moduleHint(root.Summary); text != "" {
			return text
		}
	}
	if j.pythonProgram && strings.HasPrefix(root.Summary, "could not be executed: ") {
		return config.LeaveNoPythonOut
	}
	if text := j.signalHint(root); text != "" {
		return text
	}
	return j.lineHint(root.Summary)
}

// signalHint says how to find out where a worker crashed, or who killed it.
func (j job) signalHint(root *report.Failure) string {
	crashed := slices.Contains([]string{"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT"}, root.Signal)
	explained := j.get("PYTHONFAULTHANDLER") != "" || strings.Contains(root.Text, "Fatal Python error: ")
	switch {
	case j.python != "" && crashed && !explained:
		return "set PYTHONFAULTHANDLER=1 to see where Python crashed"
	case strings.HasSuffix(root.Summary, evidence.NotOOM):
		text := "find out who sent SIGKILL: a person, a script, systemd-oomd or earlyoom; a limit of Slurm or the container"
		if id := j.get("SLURM_JOB_ID"); id != "" {
			text += fmt.Sprintf("; run sacct -j %s to see whether it was Slurm", printable.ShellWord(id))
		}
		return text
	}
	return ""
}
