package launch

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/scheduler"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/agent"
)

// Environment is what workers get beneath torch's variables.
func Environment(cfg *config.Config, log zerolog.Logger) []string {
	env, applied := agent.OMPDefault(os.Environ(), cfg.NprocPerNode)
	if applied {
		log.Warn().Msgf("%s is set to 1 for each of the %d workers, as torchrun does; set it yourself to use more cores a worker",
			agent.OMPThreadsEnv, cfg.NprocPerNode)
	}
	own := append([]string{"TORCHELASTIC_SIGNALS_TO_HANDLE=" + cfg.SignalNames}, schedulerVariables(cfg)...)
	return with(config.WithoutSecrets(env), append(own, gpuCount(cfg)...))
}

// with returns an environment with these variables in place of those of the same names.
func with(env, variables []string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.ContainsFunc(variables, func(own string) bool { return strings.HasPrefix(own, name+"=") })
	})
	return append(env, variables...)
}

// gpuCount tells workers how many GPUs each of them sees: all that the launcher does, or its own one with a virtual local rank. They are
// told nothing where the user has said it, and where only nvidia-smi knows, which may take seconds.
func gpuCount(cfg *config.Config) []string {
	if _, set := os.LookupEnv(agent.GPUCountEnv); set {
		return nil
	}
	count, known := topology.CountGPUs(topology.GPUOptions{})
	switch {
	case cfg.VirtualLocalRank && (count > 0 || !known):
		count = 1
	case !known:
		return nil
	}
	return []string{agent.GPUCountEnv + "=" + strconv.Itoa(count)}
}

// schedulerVariables are what workers are told of the scheduler's plans.
func schedulerVariables(cfg *config.Config) []string {
	var env []string
	if !cfg.Deadline.IsZero() {
		env = append(env, "ELASTICRUN_DEADLINE="+strconv.FormatInt(cfg.Deadline.Unix(), 10))
	}
	if cfg.Scheduler == scheduler.Slurm {
		env = append(env, "ELASTICRUN_JOB_ATTEMPT="+strconv.Itoa(cfg.Attempt))
	}
	return env
}
