package workerspec

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/caller"
	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/filetimer"
	"github.com/elasticrun/elasticrun/internal/scheduler"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/agent"
)

// Environment returns the part of the workers' environment that is the same for all workers and rounds. The agent adds
// the rest. Secrets are left out.
func Environment(cfg *config.Config, log zerolog.Logger) []string {
	env, applied := agent.OMPDefault(os.Environ(), cfg.NprocPerNode)
	if applied {
		// Not a warning, because the first line on the console says it too.
		log.Info().
			Msgf("%s is set to 1 for each of the %d workers, as torchrun does; set it yourself to use more cores per worker",
				agent.OMPThreadsEnv, cfg.NprocPerNode)
	}
	own := append([]string{"TORCHELASTIC_SIGNALS_TO_HANDLE=" + cfg.SignalNames}, schedulerVariables(cfg)...)
	return withVariables(caller.Without(config.WithoutSecrets(env)), append(own, gpuCount(cfg)...))
}

// WithTimerFile returns the environment of workers with the path of the file timer's FIFO.
func WithTimerFile(env []string, path string) []string {
	return withVariables(env, []string{filetimer.PathEnv + "=" + path})
}

// withVariables returns env with variables, which replace those of the same names.
func withVariables(env, variables []string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.ContainsFunc(variables, func(own string) bool { return strings.HasPrefix(own, name+"=") })
	})
	return append(env, variables...)
}

// gpuCount returns the variable with the number of GPUs that a worker sees: all GPUs of the launcher, or one with
// --virtual-local-rank. It returns none if the user has set the variable. Without --virtual-local-rank it also returns
// none if only nvidia-smi knows the number, because nvidia-smi may take seconds.
func gpuCount(cfg *config.Config) []string {
	if _, set := os.LookupEnv(agent.GPUCountEnv); set {
		return nil
	}
	gpus, err := topology.KnownGPUs(topology.GPUOptions{Kind: GPUKind(cfg)})
	count := len(gpus)
	switch {
	case cfg.VirtualLocalRank && (count > 0 || err != nil):
		count = 1
	case err != nil:
		return nil
	}
	return []string{agent.GPUCountEnv + "=" + strconv.Itoa(count)}
}

// schedulerVariables returns the variables for workers that come from the scheduler.
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
