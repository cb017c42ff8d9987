package status

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/jobs"
	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/pkg/report"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// KnownRuns returns the log folders of this user's launchers on this machine, those that run and those that have ended.
func KnownRuns(machine jobs.Folders) []string {
	return slices.Collect(maps.Keys(knownRuns(machine)))
}

// knownRuns returns what is recorded of runs, by their log folders. A running launcher counts as killed until its
// folder shows otherwise.
func knownRuns(machine jobs.Folders) map[string]jobs.Ended {
	runs := map[string]jobs.Ended{}
	for _, e := range machine.ListEnded() {
		runs[e.LogDir] = e
	}
	for _, l := range machine.List(false) {
		runs[l.LogDir] = jobs.Ended{Launcher: l.Launcher}
	}
	delete(runs, "")
	return runs
}

// PrintRuns lists the runs whose log folders choose returns, in this order. choose gets the folders that are known.
func PrintRuns(machine jobs.Folders, choose func(known []string) []string, stdout io.Writer) error {
	known := knownRuns(machine)
	folders := choose(slices.Collect(maps.Keys(known)))
	if len(folders) == 0 {
		_, err := io.WriteString(stdout, "no run of yours with log files; --log-dir, --redirects and --tee write them\n")
		return err
	}
	now := time.Now()
	var b strings.Builder
	table(&b, "RUN ID\tSCRIPT\tSTARTED\tFOR\tRESULT\tLOGS", len(folders), func(i int) string {
		folder := folders[i]
		absolute, err := filepath.Abs(folder)
		if err != nil {
			absolute = folder
		}
		return runRow(known[absolute], folder, now)
	})
	_, err := io.WriteString(stdout, b.String())
	return err
}

// runRow formats a run as cells. e is zero if nothing is recorded of it.
func runRow(e jobs.Ended, folder string, now time.Time) string {
	runID, started, lasted := e.RunID, e.Started, "-"
	if e.RunID == "" {
		runID = workerlog.RunName(filepath.Base(folder))
		if info, err := os.Stat(folder); err == nil {
			started = info.ModTime()
		}
	}
	active, err := workerlog.RunActive(folder)
	active = active && err == nil
	switch {
	case active:
		lasted = age(now, report.Time{Time: started})
	case !e.At.IsZero():
		lasted = age(e.At, report.Time{Time: started})
	}
	return cells(printable.Quote(runID), cmp.Or(printable.Line(e.Script), "-"), started.Local().Format(time.DateTime),
		lasted, result(e, active), printable.Quote(folder))
}

// result says how a run has ended.
func result(e jobs.Ended, active bool) string {
	switch {
	case active:
		return "running"
	case e.RunID == "":
		return "-"
	case e.At.IsZero():
		return "launcher killed"
	case e.Reason == report.EndSuccess:
		return "succeeded"
	}
	return fmt.Sprintf("exit code %d: %s", e.ExitCode, clean(cmp.Or(e.Summary, e.Reason)))
}
