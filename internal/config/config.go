package config

import (
	"slices"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/exitcode"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Config is the resolved configuration of a launch. No field needs another look at flags, environment or defaults.
type Config struct {
	// MinNodes and MaxNodes bound the number of nodes, 1 <= MinNodes <= MaxNodes.
	MinNodes, MaxNodes int
	// NodesMultiple divides the number of nodes of each round, MinNodes and MaxNodes; at least 1.
	NodesMultiple int
	// NprocPerNode is the number of workers on this node, at least 1.
	NprocPerNode int
	// Role is the workers' role name; not empty.
	Role string `flag:"role"`
	// VirtualLocalRank gives every worker LOCAL_RANK=0 and one visible device.
	VirtualLocalRank bool `flag:"virtual-local-rank"`
	// NumaBinding is node, socket, exclusive, core-complex, or empty for none.
	NumaBinding string `flag:"numa-binding,given"`

	// Standalone says that --standalone was given. RunID and Rendezvous reflect it.
	Standalone bool `flag:"standalone"`
	// RunID identifies the job; not empty, without a slash.
	RunID string
	// Rendezvous is how nodes find each other.
	Rendezvous Rendezvous

	// Module runs Script as python -m does; never together with NoPython.
	Module bool `flag:"module"`
	// NoPython runs Script as a program.
	NoPython bool `flag:"no-python"`
	// Script is the script, module or program as given; not empty.
	Script string
	// ScriptArgs are the arguments of the script, exactly as given.
	ScriptArgs []string

	// LogDir is the base folder of log files: empty for a new temporary one, /dev/null for none.
	LogDir string `flag:"log-dir"`
	// Redirects and Tee select the streams that go to files.
	Redirects workerlog.StreamSpec `flag:"redirects"`
	Tee       workerlog.StreamSpec `flag:"tee"`
	// LocalRanksFilter selects the workers that the console shows; nil for all.
	LocalRanksFilter workerlog.RankSet `flag:"local-ranks-filter"`
	// LogLinePrefix is the template of the prefix of teed lines; empty for torchrun's.
	LogLinePrefix string `flag:"log-line-prefix-template"`
	// LogMaxSize is the size in bytes at which a new log file begins; 0 for never.
	LogMaxSize int64 `flag:"log-max-size,given"`
	// LogMaxFiles is the number of files that are kept of a stream; 0 for all.
	LogMaxFiles int `flag:"log-max-files"`
	// DuplicateStdoutFilters and DuplicateStderrFilters are the texts that select lines for the filtered logs; nil
	// for no filtered log.
	DuplicateStdoutFilters []string `flag:"duplicate-stdout-filters"`
	DuplicateStderrFilters []string `flag:"duplicate-stderr-filters"`

	// MaxRestarts is how often the worker group may be restarted after failures.
	MaxRestarts int `flag:"max-restarts"`
	// MonitorInterval is accepted for torchrun's sake and not used.
	MonitorInterval time.Duration `flag:"monitor-interval"`
	// Signals are forwarded to the workers, and then the launcher shuts down. The list may be empty.
	Signals []syscall.Signal
	// SignalNames is --signals-to-handle as given, for the workers' TORCHELASTIC_SIGNALS_TO_HANDLE.
	SignalNames string `flag:"signals-to-handle"`
	// ShutdownTimeout is the time from the first signal to the workers until SIGKILL when the launcher is told to
	// stop; 0 kills at once. RestartGrace is the same when workers are stopped for a restart.
	ShutdownTimeout time.Duration `flag:"shutdown-timeout"`
	RestartGrace    time.Duration `flag:"restart-grace,given"`
	// ExitBarrierTimeout is how long a finished node waits for the others; 0 for not at all. A node that hosts a store
	// leaves before the others only if the user has given the time-out (ExitBarrierGiven), and not before Rendezvous.TTL.
	ExitBarrierTimeout time.Duration `flag:"exit-barrier-timeout"`
	ExitBarrierGiven   bool
	// ExitCodeMap replaces the launcher's exit code.
	ExitCodeMap exitcode.Map `flag:"exit-code-map"`
	// FinalCodes end the job, and ExcludeNodeCodes quarantine the node of the root cause. MaxSameFailures ends the job
	// after so many equal failures in a row, and MaxIdleRestarts after so many restarts without progress; 0 for never.
	FinalCodes       rdzv.ExitCodes `flag:"final-codes"`
	ExcludeNodeCodes rdzv.ExitCodes `flag:"exclude-node-codes"`
	MaxSameFailures  int            `flag:"max-same-failures"`
	MaxIdleRestarts  int            `flag:"max-restarts-without-progress"`
	// ErrorExitTimeout is how long a worker may live after it has written its error file; 0 for no limit.
	ErrorExitTimeout time.Duration `flag:"error-exit-timeout"`
	// HangTimeout is the time without progress after which a hang is suspected. HangAction says what follows: report,
	// restart or stop.
	HangTimeout HangTimeout `flag:"hang-timeout"`
	HangAction  string      `flag:"hang-action"`
	// PreemptSignals end the job by a preemption, in which workers get PreemptGrace to save. PreemptNotice is the
	// time from the signal until the node is taken away; 0 if it is unknown. OnSIGTERM is leave or preempt.
	PreemptSignals  []syscall.Signal `flag:"preempt-signals"`
	PreemptGrace    time.Duration    `flag:"preempt-grace"`
	PreemptNotice   time.Duration    `flag:"preempt-notice,given"`
	PreemptExitCode int              `flag:"preempt-exit-code"`
	OnSIGTERM       string           `flag:"on-sigterm"`
	// StepPattern is a valid regular expression that finds the step of the training in lines of workers; empty for none.
	StepPattern string `flag:"step-pattern"`

	// TorchAgent has the settings that torchrun's agent takes from the environment alone.
	TorchAgent TorchAgent

	// Report is the path of the report, with ${hostname}, ${node_rank} and ${run_id} not yet replaced; empty for none.
	Report string `flag:"report"`
	// EventLogHandler is null or console.
	EventLogHandler string `flag:"event-log-handler"`
	// EventLog is the path of the event log, with ${hostname} and ${run_id} not yet replaced; empty for none.
	EventLog string `flag:"event-log"`
	// StatusAddr is where the node's status is served; nil for nowhere. Its host is never empty.
	StatusAddr *HostPort `flag:"status-addr"`
	// NotifyCmd is run with each notice about the job; empty for none.
	NotifyCmd string `flag:"notify-cmd"`
	// LogFormat is the format of the launcher's own log: auto, console or json.
	LogFormat string `flag:"log-format"`
	// LogLevel is the level of the launcher's own log.
	LogLevel zerolog.Level `flag:"log-level"`

	// Scheduler is the detected scheduler: slurm, kubernetes, openmpi, pmi, plain; empty for none.
	Scheduler string
	// SchedulerJob is the scheduler's job that this process runs in, such as "slurm 12"; empty for none. It is known with
	// --standalone too.
	SchedulerJob string
	// Inferred are the settings that the scheduler provided; they are in Settings too.
	Inferred []Setting
	// Deadline is when the scheduler ends the job; zero if it is unknown.
	Deadline time.Time
	// Attempt is how often the scheduler has restarted the job.
	Attempt int
	// Launch is the command by which this process must replace itself to start an agent on each node of the job; nil
	// for a process that is itself an agent.
	Launch []string
	// DrawsSecret says that this process must draw a secret and pass it to the agents that Launch starts: the user gave no
	// secret, and no agent started elsewhere joins them.
	DrawsSecret bool

	// DryRun prints what the launch would do, and starts nothing.
	DryRun bool `flag:"dry-run"`
	// Preflight checks this machine before the node joins. PreflightCmd is the user's own check, empty for none, and
	// PreflightTimeout, above 0, limits it.
	Preflight        bool          `flag:"preflight"`
	PreflightCmd     string        `flag:"preflight-cmd"`
	PreflightTimeout time.Duration `flag:"preflight-timeout"`

	// ConfigFile is the absolute path of the config file that was read; empty if there was none.
	ConfigFile string
	// Settings are the raw values, without passwords, and their sources, in the table's order.
	Settings []Setting
	// Warnings are one line each; the launcher logs them before it starts.
	Warnings []string
}

// Where names the setting of a flag as the user wrote it, for errors that appear only when its value is used:
// "ELASTICRUN_REPORT=FILE" if the variable set it, "--report" if it is the default.
func (c *Config) Where(flag string) string { return c.setting(flag).Where() }

// Given reports whether the user set the flag, as opposed to a scheduler or the default.
func (c *Config) Given(flag string) bool { return c.setting(flag).Given() }

// KeepsLogs reports whether the user wants log files, which a run then keeps.
func (c *Config) KeepsLogs() bool { return c.LogDir != "" || c.Redirects.Any() || c.Tee.Any() }

func (c *Config) setting(flag string) Setting {
	i := slices.IndexFunc(c.Settings, func(s Setting) bool { return s.Name == flag })
	if i < 0 {
		return Setting{Name: flag}
	}
	return c.Settings[i]
}

// LeaveNoPythonOut is the advice to a user who starts a Python file as a program.
const LeaveNoPythonOut = "leave --no-python out to run the file with Python"

// Command returns the program of every worker and its arguments, as torchrun builds them: python -u [-m] SCRIPT
// ARGS..., or with --no-python SCRIPT ARGS..., which ignores python. The caller replaces $local_rank for each worker.
func (c *Config) Command(python string) (program string, args []string) {
	if c.NoPython {
		return c.Script, c.ScriptArgs
	}
	args = []string{"-u"}
	if c.Module {
		args = append(args, "-m")
	}
	args = append(args, c.Script)
	return python, append(args, c.ScriptArgs...)
}
