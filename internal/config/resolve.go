package config

import (
	"crypto/rand"
	"fmt"
	"path/filepath"

	"github.com/elasticrun/elasticrun/internal/scheduler"
	"github.com/elasticrun/elasticrun/pkg/coord/certfiles"
)

// surroundings are the inputs of resolve besides the settings.
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
	// certificates checks files with certificates; see openCertificates.
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

// checkCommand applies --run-path and refuses flags that contradict each other.
func (c *Config) checkCommand(r *reader) {
	value[string](r, "start-method")
	switch {
	case r.isOn("run-path"):
		if !filepath.IsAbs(c.Script) {
			r.fail("run-path", fmt.Sprintf("the script must be an absolute path, not %q", c.Script))
		}
		c.Module, c.NoPython = false, false
	case c.Module && c.NoPython:
		r.fail("module", "cannot be combined with --no-python: a module needs Python")
	}
	if r.isOn("use-env") {
		r.warn("use-env", "is always on: each worker has its local rank in LOCAL_RANK and gets no --local-rank argument")
	}
}

// newRunID returns a random UUID, version 4.
func newRunID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
