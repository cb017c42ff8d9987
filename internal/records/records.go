package records

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/caller"
	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/exitcode"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/report"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// errorFileEnv is the variable with the path of the file that gets the root cause, for the program that started this
// launcher. torchrun writes that file too.
const errorFileEnv = "TORCHELASTIC_ERROR_FILE"

// flightRecords matches the dumps of NCCL's flight recorder in an attempt's folder.
const flightRecords = "nccl_trace_rank_*"

// Ending is how the launcher ends.
type Ending struct {
	Code    int
	Reason  exitcode.Reason
	Problem string           // the error in one line; empty if a worker is the cause
	Root    *failure.Failure // the root cause, if it is a worker
}

// Records writes the files when the launcher ends.
type Records struct {
	Host      string // this machine's host name
	cfg       *config.Config
	job       job // determined at the start, because at the end a disk may not answer
	version   string
	started   time.Time
	errorFile string // empty: none
}

// Open returns the records of a launch that started at now. If --report is given, check must find out whether the file
// at path can be written at the end. An unusable --report is a *config.UsageError.
func Open(cfg *config.Config, version string, now time.Time, check func(path string) error) (*Records, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find the host name: %w", err)
	}
	r := &Records{
		cfg: cfg, job: jobOf(cfg, os.LookupEnv), Host: host, version: version, started: now,
		errorFile: os.Getenv(errorFileEnv),
	}
	if cfg.Report == "" {
		return r, nil
	}
	where := cfg.Where("report")
	if filepath.Dir(r.path("0")) != filepath.Dir(r.path("1")) {
		return nil, &config.UsageError{
			Where:   where,
			Problem: "${node_rank} is known only at the end: use it in the name of the file, not in its folder",
		}
	}
	if err := check(r.path("0")); err != nil {
		return nil, &config.UsageError{Where: where, Problem: err.Error() + "; name a file in a folder that you may write"}
	}
	return r, nil
}

// path returns the path of the report of a node with this rank.
func (r *Records) path(nodeRank string) string {
	return workerlog.Substitute(r.cfg.Report, map[string]string{
		"hostname": r.Host, "run_id": r.cfg.RunID,
		"node_rank": nodeRank,
	})
}

// Complete returns the agent's report with the facts that only the launcher knows. rep is empty if there was no agent.
func (r *Records) Complete(rep report.Report, end Ending) report.Report {
	rep.Version = r.version
	// The agent's own values win.
	rep.RunID, rep.Host, rep.Name = cmp.Or(rep.RunID, r.cfg.RunID), cmp.Or(rep.Host, r.Host),
		cmp.Or(rep.Name, r.cfg.Script)
	rep.Started = report.Time{Time: r.started}
	rep.Interpreter, rep.Script = r.job.python, r.job.script
	if root := rep.RootCause; root != nil && root.Host == rep.Host && rep.Note == "" {
		rep.Note = r.job.hint(root)
	}
	rep = ended(rep, end)
	if _, err := os.Stat(rep.LogDir); err != nil { // no output was written to it
		rep.LogDir, rep.Attempts = "", nil
		for i := range rep.Rounds {
			rep.Rounds[i].LogDir = ""
		}
	}
	for _, attempt := range rep.Attempts {
		found, _ := fs.Glob(os.DirFS(attempt), flightRecords) // fails only for a malformed pattern
		for _, name := range found {
			rep.FlightRecorder = append(rep.FlightRecorder, filepath.Join(attempt, name))
		}
	}
	return rep
}

// ended adds the ending to a report.
func ended(rep report.Report, end Ending) report.Report {
	rep.Ended = report.Time{Time: time.Now()}
	rep.ExitCode, rep.Reason, rep.Error = end.Code, string(end.Reason), end.Problem
	if end.Reason == "" {
		rep.Reason = report.ReasonSuccess
	}
	return rep
}

// WriteForCaller writes the report for the program that started this launcher, if that program asked for one. Errors
// are ignored: the caller, which made the file's folder, then has only the exit code.
func WriteForCaller(rep report.Report, end Ending) {
	path := caller.ReportFile()
	if path == "" {
		return
	}
	if rep.Ended.IsZero() {
		rep = ended(rep, end)
	}
	if data, err := rep.JSON(); err == nil {
		_ = report.WriteFile(path, data)
	}
}

// Write writes the files that the user or the environment asked for. It logs a file that cannot be written and returns,
// because the job has already ended.
func (r *Records) Write(rep report.Report, end Ending, log zerolog.Logger) {
	if r.errorFile != "" && end.Reason != "" && end.Reason != exitcode.ReasonNothingStarted {
		if err := r.writeErrorFile(rep, end, log); err != nil {
			log.Warn().Err(err).Str("path", r.errorFile).Msg("the error file of " + errorFileEnv + " could not be written")
		}
	}
	WriteForCaller(rep, end)
	if r.cfg.Report == "" {
		return
	}
	rank := "none"
	if rep.NodeRank != nil {
		rank = strconv.Itoa(*rep.NodeRank)
	}
	data, err := rep.JSON()
	if err == nil {
		err = report.WriteFile(r.path(rank), data)
	}
	if err != nil {
		log.Warn().Err(err).Str("path", r.path(rank)).Msg("the report could not be written")
	}
}

// writeErrorFile writes the root cause for the program that started this launcher.
func (r *Records) writeErrorFile(rep report.Report, end Ending, log zerolog.Logger) error {
	var data []byte
	var err error
	if end.Root != nil {
		data, err = agent.ErrorFileData(*end.Root)
	} else {
		data, err = agent.LauncherErrorData(errorName(end.Reason), rep.Error, end.Code, rep.Ended.Time)
	}
	if err != nil {
		return err
	}
	if old := readStart(r.errorFile); len(old) > 0 {
		log.Info().Str("path", r.errorFile).Str("content", report.Head(string(old),
			report.MaxLine)).Msg("the error file exists already and will be overwritten")
	}
	return report.WriteFile(r.errorFile, data)
}

// readStart returns the first bytes of a regular file. It does not read other files, because reading them may block.
func readStart(path string) []byte {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	data, _ := io.ReadAll(io.LimitReader(f, report.MaxLine+1))
	return data
}

// errorName returns the name that error files have in place of torchrun's exception type.
func errorName(reason exitcode.Reason) string {
	const worker = "ChildFailedError" // it is not known which one
	return cmp.Or(map[exitcode.Reason]string{
		exitcode.ReasonUsage: "UsageError", exitcode.ReasonRendezvous: "RendezvousError",
		exitcode.ReasonClosed: "ClosedError", exitcode.ReasonNodeLost: "NodeLostError",
		exitcode.ReasonSignal: "SignalException", exitcode.ReasonFinished: "FinishedError",
		exitcode.ReasonPreempted: "PreemptedError", exitcode.ReasonStuck: "StuckError",
		exitcode.ReasonPreflight: "PreflightError", exitcode.ReasonOutput: "OutputError",
		exitcode.ReasonWorkerFailed: worker, exitcode.ReasonWorkerKilled: worker, exitcode.ReasonHang: worker,
		exitcode.ReasonStopRequested: worker, exitcode.ReasonFinalCode: worker, exitcode.ReasonSameFailure: worker,
		exitcode.ReasonNoProgress: worker,
	}[reason], "InternalError")
}
