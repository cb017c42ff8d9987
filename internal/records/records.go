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

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/report"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// errorFileEnv names the file to which this launcher's own starter wants the root cause written, as torchrun does.
const errorFileEnv = "TORCHELASTIC_ERROR_FILE"

// flightRecords is the pattern of the dumps of NCCL's flight recorder in an attempt's folder.
const flightRecords = "nccl_trace_rank_*"

// Ending is how the launcher ends.
type Ending struct {
	Code    int
	Reason  config.Reason
	Problem string         // the error in one line; empty where a worker is the cause
	Root    *agent.Failure // the root cause, where a worker is
}

// Records are the files that are written when the launcher ends.
type Records struct {
	cfg       *config.Config
	Host      string
	version   string
	started   time.Time
	errorFile string // empty: none
}

// Open finds out, by check, whether the report can be written when the time comes.
func Open(cfg *config.Config, version string, now time.Time, check func(path string) error) (*Records, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find the host name: %w", err)
	}
	r := &Records{cfg: cfg, Host: host, version: version, started: now, errorFile: os.Getenv(errorFileEnv)}
	if cfg.Report == "" {
		return r, nil
	}
	where := "--report=" + cfg.Report
	if filepath.Dir(r.path("0")) != filepath.Dir(r.path("1")) {
		return nil, &config.UsageError{Where: where, Problem: "${node_rank} is known at the end only, so it may stand in the file's name and not in its folder"}
	}
	if err := check(r.path("0")); err != nil {
		return nil, &config.UsageError{Where: where, Problem: err.Error() + "; name a file in a folder that you may write"}
	}
	return r, nil
}

// path is the report's, of a node of this rank.
func (r *Records) path(nodeRank string) string {
	return workerlog.Substitute(r.cfg.Report, map[string]string{"hostname": r.Host, "run_id": r.cfg.RunID, "node_rank": nodeRank})
}

// Complete adds to what the agent knows, if there was one, what the launcher knows.
func (r *Records) Complete(rep report.Report, end Ending) report.Report {
	rep.Version = r.version
	// The agent has said who it is, unless there was none.
	rep.RunID, rep.Host, rep.Name = cmp.Or(rep.RunID, r.cfg.RunID), cmp.Or(rep.Host, r.Host), cmp.Or(rep.Name, r.cfg.Script)
	rep.Started, rep.Ended = report.Time{Time: r.started}, report.Time{Time: time.Now()}
	rep.ExitCode, rep.Reason, rep.Error = end.Code, string(end.Reason), end.Problem
	if end.Reason == "" {
		rep.Reason = "success"
	}
	if _, err := os.Stat(rep.LogDir); err != nil { // nothing was written to it
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

// Write writes the files that somebody wants. The job has ended: what cannot be written changes nothing but the log.
func (r *Records) Write(rep report.Report, end Ending, log zerolog.Logger) {
	if r.errorFile != "" && end.Reason != "" && end.Reason != config.ReasonNothingStarted {
		if err := r.writeErrorFile(rep, end, log); err != nil {
			log.Warn().Err(err).Str("path", r.errorFile).Msg("the error file of " + errorFileEnv + " could not be written")
		}
	}
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

// writeErrorFile passes the root cause on to whoever started the launcher.
func (r *Records) writeErrorFile(rep report.Report, end Ending, log zerolog.Logger) error {
	var data []byte
	var err error
	if end.Root != nil {
		data, err = end.Root.ErrorFileData()
	} else {
		data, err = agent.LauncherErrorData(errorName(end.Reason), rep.Error, end.Code, rep.Ended.Time)
	}
	if err != nil {
		return err
	}
	if old := begin(r.errorFile); len(old) > 0 {
		log.Info().Str("path", r.errorFile).Str("content", report.Begin(string(old), report.MaxLine)).Msg("the error file is there already and will be overwritten")
	}
	return report.WriteFile(r.errorFile, data)
}

// begin reads the first bytes of a regular file, and nothing of any other, which might hold the reader up.
func begin(path string) []byte {
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

// errorName stands where torchrun's error files have the type of the exception.
func errorName(reason config.Reason) string {
	switch reason {
	case config.ReasonUsage:
		return "UsageError"
	case config.ReasonRendezvous:
		return "RendezvousError"
	case config.ReasonSignal:
		return "SignalException"
	case config.ReasonFinished:
		return "FinishedError"
	case config.ReasonStuck:
		return "StuckError"
	case config.ReasonPreflight:
		return "PreflightError"
	case config.ReasonOutput:
		return "OutputError"
	case config.ReasonWorkerFailed, config.ReasonWorkerKilled: // of a worker that is not known
		return "ChildFailedError"
	default:
		return "InternalError"
	}
}
