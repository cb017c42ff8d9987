package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/caller"
	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/exitcode"
	"github.com/elasticrun/elasticrun/internal/plural"
	"github.com/elasticrun/elasticrun/internal/scheduler"
	"github.com/elasticrun/elasticrun/internal/workerspec"
)

// execSrun replaces this process by an srun that starts an agent on each node, if this is the batch script of a Slurm
// job of several nodes and nothing else starts their agents. It runs before the guard starts, so that Slurm's signals
// reach srun directly. The agents get a new secret by the environment, unless the user gave one. If done is false, this
// process goes on; else it ends with code.
func execSrun(args []string) (code int, done bool) {
	facts, _ := scheduler.Detect(os.LookupEnv, scheduler.Host{})
	if facts.Launch == nil {
		return 0, false
	}
	cfg, err := config.Load(args, workerspec.UnknownMachine{})
	switch {
	case err != nil:
		return failUsage(err), true
	case cfg.Launch == nil || cfg.DryRun:
		return 0, false
	}
	srun, err := exec.LookPath(cfg.Launch[0])
	if err != nil {
		return failUsage(&config.UsageError{
			Where:   facts.Nodes.Source,
			Problem: "starting an agent on each node needs srun: " + err.Error(),
		}), true
	}
	_ = os.Unsetenv(caller.ReportEnv)      // agents of several nodes do not share a report; it fails for empty names only
	if cfg.LogLevel <= zerolog.InfoLevel { // the agents log the warnings
		fmt.Fprintf(os.Stderr, "elasticrun: slurm job %s has %s: starting an agent on each by %s\n",
			facts.Job, plural.Of(facts.Nodes.Is, "node"),
			strings.Join(scheduler.LaunchCommand(facts.Launch, []string{"elasticrun", "..."}), " "))
	}
	env := os.Environ()
	if cfg.DrawsSecret {
		env = append(env, config.SecretEnv+"="+config.DrawSecret()) // other users can read command lines
	}
	err = syscall.Exec(srun, cfg.Launch, scheduler.LaunchEnvironment(env, config.SecretVariables()...))
	return fail(ending{
		code: exitInternal, reason: exitcode.ReasonInternal,
		err: fmt.Errorf("replace this process by %s: %w", srun, err),
	}), true
}
