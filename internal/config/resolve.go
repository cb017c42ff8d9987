package config

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/internal/scheduler"
	"github.com/elasticrun/elasticrun/pkg/coord/certfiles"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// surroundings are what resolve asks beside the settings.
type surroundings struct {
	Counter
	newID func() string
	env   scheduler.Lookup
	host  scheduler.Host
	// self is this program with its arguments.
	self []string
	// dir returns the working directory, without links.
	dir func() string
	// secret reads a file with a secret; see readSecret.
	secret func(path string) (Secret, error)
	// certificates checks files with certificates; see checkCertificates.
	certificates func(certfiles.Files) error
	// noScript allows a command line without a script.
	noScript bool
}

// resolve makes the Config. flags are the table of a launch, and command is the script and its arguments.
func resolve(flags []Flag, command []string, settings []Setting, from surroundings) (*Config, error) {
	switch {
	case len(command) == 0 && from.noScript:
		command = []string{""}
	case len(command) == 0:
		return nil, &UsageError{Problem: "no script given: elasticrun [flags] SCRIPT [ARGS...]"}
	case command[0] == "":
		return nil, &UsageError{Problem: "the script's name is empty: elasticrun [flags] SCRIPT [ARGS...]"}
	}
	r := newReader(flags, settings)
	c := &Config{Script: command[0], ScriptArgs: command[1:]}
	facts := c.infer(r, from)
	r.decode(c)
	r.decode(&c.Rendezvous)
	c.readPrefixTemplate(r, from)
	c.readTorchAgent(r, from)
	nodes := value[nodeRange](r, "nnodes")
	c.MinNodes, c.MaxNodes = nodes.low, nodes.high
	c.NprocPerNode = readProcs(r, from)
	c.readMultiples(r)
	c.readRendezvous(r, from, facts)
	c.checkCommand(r)
	c.checkOutput(r)
	c.warnSelections(r)
	c.Signals = readSignals(r)
	c.readPreemption(r)
	c.checkPolicy(r)
	c.ExitBarrierGiven = r.given("exit-barrier-timeout")
	if !r.given("restart-grace") {
		c.RestartGrace = c.ShutdownTimeout
	}
	c.Rendezvous.RejoinTimeout = c.readRejoinTimeout(r)
	if r.given("preflight-timeout") && c.PreflightCmd == "" {
		r.warn("preflight-timeout", "has no effect without --preflight-cmd")
	}
	if c.HangTimeout == (HangTimeout{}) && c.HangAction != "" && c.HangAction != "report" {
		r.warn("hang-action", "has no effect with --hang-timeout=off")
	}
	if r.err != nil {
		return nil, r.err
	}
	for _, s := range settings {
		c.Settings = append(c.Settings, r.settings[s.Name].redacted())
	}
	r.warnMisplaced(c.ScriptArgs)
	c.Warnings = r.printableWarnings()
	return c, nil
}

// warnMisplaced warns of the launcher's flags among the script's arguments, where torchrun leaves them to the script
// too.
func (r *reader) warnMisplaced(args []string) {
	for _, arg := range args {
		name, _, _ := strings.Cut(arg, "=")
		long, ok := strings.CutPrefix(name, "--")
		if flag := underscoreToDash(long); ok && slices.Contains(misplacedFlags(), flag) && !r.given(flag) {
			r.warnings = append(r.warnings,
				name+" follows the script, so it is an argument of the script; flags of elasticrun go before the script")
			return
		}
	}
}

// readProcs turns --nproc-per-node into a number of workers.
func readProcs(r *reader, counter Counter) int {
	const name = "nproc-per-node"
	return read(r, name, func(s string) (int, error) {
		switch strings.TrimSpace(s) {
		case "cpu":
			return countCPUs(counter)
		case "gpu", "xpu":
			return countGPUs(counter, strings.TrimSpace(s))
		case "auto":
			n, err := counter.Accelerators()
			if err != nil {
				r.warn(name, "cannot count the GPUs, so the number of CPUs is used: "+err.Error())
			}
			if err == nil && n > 0 {
				return n, nil
			}
			return countCPUs(counter)
		}
		n, err := between(1, maxProcPerNode)(s)
		if err != nil {
			return 0, fmt.Errorf(
				"must be auto, cpu, gpu, xpu or a number between 1 and %d; for any other device give the number",
				maxProcPerNode,
			)
		}
		return n, nil
	})
}

// countGPUs counts the devices of torch.cuda (gpu) or torch.xpu (xpu).
func countGPUs(counter Counter, kind string) (int, error) {
	count, other, makers, others := counter.GPUs, counter.XPUs, "NVIDIA or AMD", "xpu"
	if kind == "xpu" {
		count, other, makers, others = counter.XPUs, counter.GPUs, "Intel", "gpu"
	}
	n, err := count()
	switch {
	case err != nil:
		return 0, fmt.Errorf("cannot count the GPUs (%w): give a number", err)
	case n > 0:
		return n, nil
	}
	if n, err := other(); err == nil && n > 0 {
		return 0, fmt.Errorf("there is no GPU of %s on this machine: give %s for the GPUs that there are, or a number",
			makers, others)
	}
	return 0, errors.New("there is no GPU on this machine: give a number, or cpu")
}

func countCPUs(counter Counter) (int, error) {
	n, err := counter.CPUs()
	if err != nil {
		return 0, fmt.Errorf("cannot count the CPUs (%w): give a number", err)
	}
	return max(n, 1), nil
}

// checkCommand applies --run-path and refuses flags that contradict each other.
func (c *Config) checkCommand(r *reader) {
	value[string](r, "start-method")
	switch {
	case r.flag("run-path"):
		if !filepath.IsAbs(c.Script) {
			r.fail("run-path", fmt.Sprintf("the script must be an absolute path, not %q", c.Script))
		}
		c.Module, c.NoPython = false, false
	case c.Module && c.NoPython:
		r.fail("module", "cannot be combined with --no-python: a module needs Python")
	}
	if r.flag("use-env") {
		r.warn("use-env", "always so: each worker has its local rank in LOCAL_RANK and gets no --local-rank argument")
	}
}

// readPrefixTemplate lets torchrun's older variable replace an empty template. In torchrun an empty template counts as
// missing (torch 2.14 torch/distributed/run.py, config_from_args).
func (c *Config) readPrefixTemplate(r *reader, from surroundings) {
	const name = "log-line-prefix-template"
	if older, _ := from.env(workerlog.PrefixTemplateEnv); c.LogLinePrefix == "" && older != "" {
		c.LogLinePrefix = older
		r.settings[name] = Setting{
			Name: name, Value: older, Source: Source{FromEnv, workerlog.PrefixTemplateEnv},
		}
	}
}

func (c *Config) checkOutput(r *reader) {
	if c.LogMaxFiles > 0 && c.LogMaxSize == 0 {
		r.fail("log-max-files", "needs --log-max-size: without it each stream has one file")
	}
	if r.given("logs-specs") {
		r.fail("logs-specs", "names a Python class, which elasticrun cannot load: use --log-dir, --redirects and --tee")
	}
}

func readSignals(r *reader) []syscall.Signal {
	return read(r, "signals-to-handle", func(s string) ([]syscall.Signal, error) {
		signals, unknown, err := parseSignals(s)
		for _, name := range unknown {
			r.warn("signals-to-handle", "skipping the unknown signal "+printable.Quote(name))
		}
		return signals, err
	})
}

// rejoinMargin is added to the time that a node's workers may take to stop.
const rejoinMargin = 10 * time.Second

// readRejoinTimeout reads --rejoin-timeout, whose default and bounds depend on other times.
func (c *Config) readRejoinTimeout(r *reader) time.Duration {
	const name = "rejoin-timeout"
	ttl := c.Rendezvous.TTL()
	back := c.RestartGrace // how long a node may take until it rejoins
	if c.PreflightCmd != "" {
		back += c.PreflightTimeout
	}
	if !r.given(name) {
		return max(back+rejoinMargin, ttl)
	}
	timeout := value[time.Duration](r, name)
	switch {
	case timeout > c.RestartGrace && timeout <= back:
		r.warn(name, "too short for a node that runs --preflight-cmd for the whole --preflight-timeout before it rejoins")
	case timeout <= c.RestartGrace:
		grace := "--restart-grace"
		if !r.given("restart-grace") {
			grace = "--shutdown-timeout"
		}
		r.fail(
			name,
			fmt.Sprintf("must be above %s (%v seconds), the time in which workers may stop", grace, c.RestartGrace.Seconds()),
		)
	case timeout < ttl:
		r.fail(name, fmt.Sprintf("must be at least %v seconds (keep_alive_interval × keep_alive_max_attempt), "+
			"the time after which a silent node is lost", ttl.Seconds()))
	}
	return timeout
}

// newRunID returns a random UUID, version 4.
func newRunID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
