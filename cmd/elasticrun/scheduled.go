package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/scheduler"
)

// spread replaces this process by an srun that starts an agent on each node, where this is a Slurm job of several nodes whose
// agents nobody else starts. It comes before the guard, which would only stand between srun and Slurm's signals. Without
// done there is nothing to do; else something was refused, or only told.
func spread(args []string) (code int, done bool) {
	facts, _ := scheduler.Detect(os.LookupEnv, scheduler.Host{})
	if facts.Launch == nil {
		return 0, false
	}
	cfg, err := config.Load(args, otherMachine{})
	switch {
	case err != nil:
		return usage(err), true
	case cfg.Launch == nil || cfg.DryRun:
		return 0, false
	}
	srun, err := exec.LookPath(cfg.Launch[0])
	if err != nil {
		return usage(&config.UsageError{Where: facts.Nodes.Source, Problem: "an agent has to be started on each node, which takes srun: " + err.Error()}), true
	}
	for _, w := range cfg.Warnings {
		fmt.Fprintln(os.Stderr, "elasticrun: warning:", w)
	}
	fmt.Fprintf(os.Stderr, "elasticrun: slurm job %s has %d nodes: starting an agent on each by %s\n",
		facts.Job, facts.Nodes.Is, strings.Join(scheduler.LaunchCommand(facts.Launch, []string{"elasticrun", "..."}), " "))
	err = syscall.Exec(srun, cfg.Launch, os.Environ())
	return fail(ending{code: exitInternal, reason: config.ReasonInternal, err: fmt.Errorf("replace this process by %s: %w", srun, err)}), true
}

// otherMachine answers config's questions about the hardware of nodes, which cannot be asked from here.
type otherMachine struct{}

func (otherMachine) CPUs() (int, error) { return 1, nil }
func (otherMachine) GPUs() (int, error) { return 1, nil }

// tellInferred says what was found out and from where.
func tellInferred(cfg *config.Config, log zerolog.Logger) {
	if len(cfg.Inferred) == 0 {
		return
	}
	line := log.Info()
	for _, s := range cfg.Inferred {
		line = line.Str(s.Name, s.Value+" by "+s.Source.String())
	}
	line.Msg("inferred from " + cfg.Scheduler)
}

// scheduled is what workers are told of the scheduler's plans.
func scheduled(cfg *config.Config) []string {
	var env []string
	if !cfg.Deadline.IsZero() {
		env = append(env, "ELASTICRUN_DEADLINE="+strconv.FormatInt(cfg.Deadline.Unix(), 10))
	}
	if cfg.Scheduler == scheduler.Slurm {
		env = append(env, "ELASTICRUN_JOB_ATTEMPT="+strconv.Itoa(cfg.Attempt))
	}
	return env
}

// lookUpTimeout is how long the name of a node may take to be looked up.
const lookUpTimeout = 5 * time.Second

// lookUpNode replaces the name of a Slurm node by its address where the name cannot be looked up: to Slurm it need not be a
// host's. Without an answer the name stays, and the rendezvous tries on.
func lookUpNode(ctx context.Context, cfg *config.Config, log zerolog.Logger) {
	r := &cfg.Rendezvous
	meets := func(s config.Setting) bool { return s.Name == "rdzv-endpoint" || s.Name == "master-addr" }
	if cfg.Scheduler != scheduler.Slurm || len(r.Endpoints) != 1 || !slices.ContainsFunc(cfg.Inferred, meets) {
		return
	}
	at := &r.Endpoints[0]
	addr := nodeAddr(ctx, at.Host, log)
	if r.MasterAddr == at.Host {
		r.MasterAddr = addr
	}
	at.Host = addr
}

// nodeAddr returns a node's name if it can be looked up, else the address that Slurm knows, or the name all the same.
func nodeAddr(ctx context.Context, node string, log zerolog.Logger) string {
	asking, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	if _, err := net.DefaultResolver.LookupHost(asking, node); err == nil {
		return node
	}
	addr, err := scheduler.NodeAddr(ctx, node)
	if err != nil {
		log.Warn().Err(err).Msgf("the node name %s cannot be looked up", node)
		return node
	}
	log.Info().Str("node", node).Str("address", addr).Msg("the node name cannot be looked up; Slurm knows its address")
	return addr
}
