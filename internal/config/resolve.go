package config

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/bytesize"
	"github.com/elasticrun/elasticrun/internal/scheduler"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Upper bounds far beyond any real job: what is larger is a typing error.
const (
	maxNodes       = 1 << 20
	maxProcPerNode = 1 << 16
	maxRestarts    = 1 << 30
)

// surroundings are what is asked beside the settings.
type surroundings struct {
	Counter
	newID func() string
	env   scheduler.Lookup
	host  scheduler.Host
	// self is this program with the arguments that it was given.
	self []string
	// secret reads a file with a secret; see readSecret.
	secret func(path string) (secret Secret, warning string, err error)
	// noScript says that a script need not be given; it is empty then.
	noScript bool
}

// resolve makes the Config. command is the script and its arguments.
func resolve(command []string, settings []Setting, from surroundings) (*Config, error) {
	switch {
	case len(command) == 0 && from.noScript:
		command = []string{""}
	case len(command) == 0:
		return nil, &UsageError{Problem: "no script given: elasticrun [flags] SCRIPT [ARGS...]"}
	case command[0] == "":
		return nil, &UsageError{Problem: "the script's name is empty: elasticrun [flags] SCRIPT [ARGS...]"}
	}
	r := &reader{settings: make(map[string]Setting, len(settings))}
	for _, s := range settings {
		r.settings[s.Name] = s
	}
	c := &Config{Script: command[0], ScriptArgs: command[1:]}
	facts := c.infer(r, from)
	c.readSize(r, from)
	c.readRendezvous(r, from, facts)
	c.readCommand(r)
	c.readOutput(r)
	c.readLife(r)
	c.readLauncher(r)
	if r.err != nil {
		return nil, r.err
	}
	for _, s := range settings {
		c.Settings = append(c.Settings, r.settings[s.Name].redacted())
	}
	c.Warnings = printable(r.warnings)
	return c, nil
}

func (c *Config) readSize(r *reader, counter Counter) {
	nodes := read(r, "nnodes", parseNodes)
	c.MinNodes, c.MaxNodes = nodes[0], nodes[1]
	c.NprocPerNode = readProcs(r, counter)
	c.Role = read(r, "role", notEmpty)
	c.VirtualLocalRank = r.flag("virtual-local-rank")
	if r.given("numa-binding") {
		c.NumaBinding = read(r, "numa-binding", oneOf("node", "socket", "exclusive", "core-complex"))
	}
}

// parseNodes reads N or MIN:MAX.
func parseNodes(s string) ([2]int, error) {
	low, high, isRange := strings.Cut(s, ":")
	if !isRange {
		high = low
	}
	one := between(1, maxNodes)
	minimum, errLow := one(low)
	maximum, errHigh := one(high)
	switch {
	case errLow != nil || errHigh != nil:
		return [2]int{}, fmt.Errorf("must be N or MIN:MAX, each a whole number between 1 and %d", maxNodes)
	case minimum > maximum:
		return [2]int{}, fmt.Errorf("MIN must not be above MAX: did you mean %d:%d?", maximum, minimum)
	}
	return [2]int{minimum, maximum}, nil
}

// readProcs turns --nproc-per-node into a number of workers.
func readProcs(r *reader, counter Counter) int {
	const name = "nproc-per-node"
	return read(r, name, func(s string) (int, error) {
		switch strings.TrimSpace(s) {
		case "cpu":
			return countCPUs(counter)
		case "gpu":
			n, err := counter.GPUs()
			switch {
			case err != nil:
				return 0, fmt.Errorf("cannot count the GPUs (%w): give a number", err)
			case n < 1:
				return 0, errors.New("there is no GPU here: give a number, or cpu")
			}
			return n, nil
		case "auto":
			n, err := counter.GPUs()
			if err != nil {
				r.warn(name, "cannot count the GPUs, so the CPUs count: "+err.Error())
			}
			if err == nil && n > 0 {
				return n, nil
			}
			return countCPUs(counter)
		}
		n, err := between(1, maxProcPerNode)(s)
		if err != nil {
			return 0, fmt.Errorf("must be auto, cpu, gpu or a number between 1 and %d; for any other device give the number", maxProcPerNode)
		}
		return n, nil
	})
}

func countCPUs(counter Counter) (int, error) {
	n, err := counter.CPUs()
	if err != nil {
		return 0, fmt.Errorf("cannot count the CPUs (%w): give a number", err)
	}
	return max(n, 1), nil
}

func (c *Config) readCommand(r *reader) {
	c.Module, c.NoPython = r.flag("module"), r.flag("no-python")
	read(r, "start-method", oneOf("spawn", "fork", "forkserver"))
	switch {
	case r.flag("run-path"):
		if !filepath.IsAbs(c.Script) {
			r.fail("run-path", fmt.Sprintf("the script must be an absolute path, not %q", c.Script))
		}
		c.Module, c.NoPython = false, false
	case c.Module && c.NoPython:
		r.fail("module", "cannot be combined with --no-python: a module needs Python")
	}
}

func (c *Config) readOutput(r *reader) {
	c.LogDir = r.text("log-dir")
	c.Redirects = read(r, "redirects", workerlog.ParseStdSpec)
	c.Tee = read(r, "tee", workerlog.ParseStdSpec)
	c.LocalRanksFilter = read(r, "local-ranks-filter", workerlog.ParseRanks)
	c.LogLinePrefix = r.text("log-line-prefix")
	if r.given("log-max-size") {
		c.LogMaxSize = read(r, "log-max-size", parseLogSize)
	}
	c.LogMaxFiles = read(r, "log-max-files", between(0, math.MaxInt32))
	if c.LogMaxFiles > 0 && c.LogMaxSize == 0 {
		r.fail("log-max-files", "needs --log-max-size: without it there is one file only")
	}
	c.DuplicateStdoutFilters = workerlog.ParseFilters(r.text("duplicate-stdout-filters"))
	c.DuplicateStderrFilters = workerlog.ParseFilters(r.text("duplicate-stderr-filters"))
	if r.given("logs-specs") {
		r.fail("logs-specs", "names a Python class, which elasticrun cannot load: use --log-dir, --redirects and --tee")
	}
}

// minLogSize is the smallest --log-max-size: smaller files would only cost time.
const minLogSize = 4 << 10

func parseLogSize(s string) (int64, error) {
	n, err := bytesize.Parse(s)
	switch {
	case err != nil:
		return 0, err
	case n < minLogSize:
		return 0, errors.New("must be at least 4KiB")
	case n > maxMemory:
		return 0, errors.New("must be at most 1024TiB")
	}
	return n, nil
}

func (c *Config) readLife(r *reader) {
	c.MaxRestarts = read(r, "max-restarts", between(0, maxRestarts))
	c.MonitorInterval = read(r, "monitor-interval", aboveZero)
	c.SignalNames = r.text("signals-to-handle")
	c.Signals = read(r, "signals-to-handle", func(s string) ([]syscall.Signal, error) {
		signals, unknown, err := parseSignals(s)
		for _, name := range unknown {
			r.warn("signals-to-handle", "unknown signal "+shown(name)+" is skipped")
		}
		return signals, err
	})
	c.ShutdownTimeout = read(r, "shutdown-timeout", seconds)
	c.ErrorExitTimeout = read(r, "error-exit-timeout", seconds)
	c.RestartGrace = c.ShutdownTimeout
	if r.given("restart-grace") {
		c.RestartGrace = read(r, "restart-grace", seconds)
	}
	c.ExitBarrierTimeout = read(r, "exit-barrier-timeout", seconds)
	c.ExitCodeMap = read(r, "exit-code-map", ParseExitCodeMap)
	c.readMembership(r)
}

// readMembership reads what decides who stays in the job.
func (c *Config) readMembership(r *reader) {
	v := &c.Rendezvous
	v.RestartWindow = read(r, "restart-window", seconds)
	v.MaxNodeLosses = read(r, "max-node-losses", between(0, maxRestarts))
	v.Grow = read(r, "grow", oneOf("now", "next-restart", "never"))
	v.MinUptime = read(r, "min-uptime", seconds)
	const name = "rejoin-timeout"
	back := c.RestartGrace // how long a node may take to come back
	if r.text("preflight-cmd") != "" {
		back += read(r, "preflight-timeout", aboveZero)
	}
	if !r.given(name) {
		v.RejoinTimeout = max(back+rejoinMargin, v.TTL())
		return
	}
	v.RejoinTimeout = read(r, name, seconds)
	switch {
	case v.RejoinTimeout > c.RestartGrace && v.RejoinTimeout <= back:
		r.warn(name, "a node that checks itself by --preflight-cmd, and takes --preflight-timeout for it, may come back too late")
	case v.RejoinTimeout <= c.RestartGrace:
		grace := "--restart-grace"
		if !r.given("restart-grace") {
			grace = "--shutdown-timeout"
		}
		r.fail(name, fmt.Sprintf("must be above %s, %v seconds, which workers may take to stop", grace, c.RestartGrace.Seconds()))
	case v.RejoinTimeout < v.TTL():
		r.fail(name, fmt.Sprintf("must be at least %v seconds (keep_alive_interval × keep_alive_max_attempt), "+
			"the time after which a silent node is lost", v.TTL().Seconds()))
	}
}

// rejoinMargin is what a node gets beyond the time that its workers may take to stop.
const rejoinMargin = 10 * time.Second

// parseSignals reads a list like SIGTERM,SIGINT. Names that this system does
// not have are returned apart, since torchrun skips them with a warning.
func parseSignals(s string) (signals []syscall.Signal, unknown []string, err error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil, nil
	}
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		switch sig := unix.SignalNum(name); {
		case sig == 0:
			unknown = append(unknown, name)
		case sig == unix.SIGKILL || sig == unix.SIGSTOP:
			return nil, nil, fmt.Errorf("%s cannot be handled by any process", name)
		case sig == unix.SIGCHLD || sig == unix.SIGURG:
			return nil, nil, fmt.Errorf("%s is used by the launcher itself", name)
		case !slices.Contains(signals, sig):
			signals = append(signals, sig)
		}
	}
	return signals, unknown, nil
}

func (c *Config) readLauncher(r *reader) {
	c.LogFormat = read(r, "log-format", logFormat())
	c.LogLevel = read(r, "log-level", parseLevel)
	c.Report = r.text("report")
	c.EventLogHandler = read(r, "event-log-handler", oneOf("null", "console", "dynamic_rendezvous"))
	if c.EventLogHandler == "dynamic_rendezvous" {
		c.EventLogHandler = "null"
	}
	c.DryRun, c.Preflight = r.flag("dry-run"), r.flag("preflight")
	c.PreflightCmd = r.text("preflight-cmd")
	c.PreflightTimeout = read(r, "preflight-timeout", aboveZero)
	if r.given("preflight-timeout") && c.PreflightCmd == "" {
		r.warn("preflight-timeout", "has no effect without --preflight-cmd")
	}
	c.EventLog = read(r, "event-log", parseEventLog)
	if r.given("status-addr") {
		at := read(r, "status-addr", parseStatusAddr)
		c.StatusAddr = &at
	}
}

// parseEventLog checks what a path is to be filled in with.
func parseEventLog(s string) (string, error) {
	if workerlog.Substitute(s, nil) != workerlog.Substitute(s, map[string]string{"node_rank": ""}) {
		return "", errors.New("the node's rank is not known yet when the log is opened: use ${hostname}, or ${run_id}")
	}
	return s, nil
}

func logFormat() func(string) (string, error) { return oneOf("auto", "console", "json") }

// parseLevel reads a level by Python's names or zerolog's, in any case.
func parseLevel(s string) (zerolog.Level, error) {
	switch strings.ToLower(s) {
	case "trace", "notset":
		return zerolog.TraceLevel, nil
	case "debug":
		return zerolog.DebugLevel, nil
	case "info":
		return zerolog.InfoLevel, nil
	case "warning", "warn":
		return zerolog.WarnLevel, nil
	case "error":
		return zerolog.ErrorLevel, nil
	case "critical", "fatal":
		return zerolog.FatalLevel, nil
	}
	return 0, errors.New("must be one of trace, debug, info, warning, error, critical")
}

func notEmpty(s string) (string, error) {
	if s == "" {
		return "", errors.New("must not be empty")
	}
	return s, nil
}

// newRunID returns a random UUID, version 4.
func newRunID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
