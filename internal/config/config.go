package config

import (
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Config is everything the launcher was told, checked and resolved: no field
// needs another look at flags, environment or defaults.
type Config struct {
	// MinNodes and MaxNodes bound the number of nodes, 1 <= MinNodes <= MaxNodes.
	MinNodes, MaxNodes int
	// NprocPerNode is the number of workers on this node, at least 1.
	NprocPerNode int
	// Role is the workers' role name; not empty.
	Role string
	// VirtualLocalRank gives every worker LOCAL_RANK=0 and one visible device.
	VirtualLocalRank bool
	// NumaBinding is node, socket, exclusive, core-complex, or empty for none.
	NumaBinding string

	// Standalone tells that --standalone was in force; RunID and Rendezvous reflect it.
	Standalone bool
	// RunID identifies the job; not empty, without a slash.
	RunID string
	// Rendezvous is how nodes find each other.
	Rendezvous Rendezvous

	// Module runs Script as python -m does; never together with NoPython.
	Module bool
	// NoPython runs Script as a program.
	NoPython bool
	// Script is the script, module or program as given; not empty.
	Script string
	// ScriptArgs follow the script, exactly as given.
	ScriptArgs []string

	// LogDir is the base folder of log files: empty for a fresh temporary one,
	// /dev/null for none.
	LogDir string
	// Redirects and Tee select the streams that go to files.
	Redirects, Tee workerlog.StdSpec
	// LocalRanksFilter names the workers shown on the console; nil: all.
	LocalRanksFilter workerlog.RankSet
	// LogLinePrefix is the template of what teed lines start with; empty for
	// torchrun's.
	LogLinePrefix string
	// LogMaxSize is the size in bytes at which a new log file begins; 0 is never.
	LogMaxSize int64
	// LogMaxFiles is how many files of a stream are kept; 0 is all.
	LogMaxFiles int
	// DuplicateStdoutFilters and DuplicateStderrFilters are the texts that
	// select lines for the filtered logs; nil: no filtered log.
	DuplicateStdoutFilters, DuplicateStderrFilters []string

	// MaxRestarts is how often the worker group may be restarted after failures.
	MaxRestarts int
	// MonitorInterval is accepted for torchrun's sake and used by nothing.
	MonitorInterval time.Duration
	// Signals are handled by passing them on and shutting down. It may be empty.
	Signals []syscall.Signal
	// SignalNames is --signals-to-handle as given, for the workers' environment
	// (TORCHELASTIC_SIGNALS_TO_HANDLE).
	SignalNames string
	// ShutdownTimeout is the time between the first signal to workers and
	// SIGKILL when the launcher is told to stop; 0 kills at once. RestartGrace is the same
	// when they are stopped for another reason, and the job may go on.
	ShutdownTimeout, RestartGrace time.Duration
	// ExitBarrierTimeout is how long a finished node waits for the others, if that is longer than Rendezvous.TTL.
	ExitBarrierTimeout time.Duration
	// ExitCodeMap changes the launcher's exit code at the very end.
	ExitCodeMap ExitCodeMap

	// ErrorExitTimeout is how long a worker may live on after it has written its error file; 0 is for ever.
	ErrorExitTimeout time.Duration

	// Report is the path of the report, in which ${hostname}, ${node_rank} and ${run_id} are to be replaced; empty for
	// none.
	Report string
	// EventLogHandler is null or console.
	EventLogHandler string
	// EventLog is the path of the event log, in which ${hostname} and ${run_id} are to be replaced; empty for none.
	EventLog string
	// StatusAddr is where the node's status is served; nil for nowhere. Its host is never empty.
	StatusAddr *HostPort
	// LogFormat is auto, console or json: the form of the launcher's own log.
	LogFormat string
	// LogLevel is the lowest level of the launcher's own log that is written.
	LogLevel zerolog.Level

	// Scheduler is what the surroundings were recognized as: slurm, kubernetes, openmpi, pmi, plain; empty for none.
	Scheduler string
	// Inferred are the settings that the surroundings gave; they are in Settings too.
	Inferred []Setting
	// Deadline is when the scheduler ends the job; zero where it is not known.
	Deadline time.Time
	// Attempt is how often the scheduler has started the job again.
	Attempt int
	// Launch is the command by which this process has to replace itself, since it starts this program on each
	// node of the job; nil for a process that is an agent.
	Launch []string

	// DryRun says what would be done, and starts nothing.
	DryRun bool
	// Preflight checks this machine before the node joins; PreflightCmd is the site's own check, empty for none, and PreflightTimeout, above 0,
	// how long that may take.
	Preflight        bool
	PreflightCmd     string
	PreflightTimeout time.Duration

	// ConfigFile is the absolute path of the config file that was read; empty if there was none.
	ConfigFile string
	// Settings are the raw values, without passwords, and where each came from, in the table's order.
	Settings []Setting
	// Warnings are one line each; the launcher logs them before it starts.
	Warnings []string
}

// Counter counts the devices of this machine for --nproc-per-node.
type Counter interface {
	// CPUs returns how many CPUs this process may use.
	CPUs() (int, error)
	// GPUs returns how many GPUs workers would see; 0 if there is none.
	GPUs() (int, error)
}
