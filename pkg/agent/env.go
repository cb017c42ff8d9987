package agent

import (
	"slices"
	"strconv"
	"strings"
)

// Environment variables of workers.
const (
	// OMPThreadsEnv is the variable that [OMPDefault] sets.
	OMPThreadsEnv = "OMP_NUM_THREADS"
	// GPUCountEnv has the number of GPUs that a worker sees, so that the worker need not ask the driver. The caller of
	// [New] sets it in [Options].Env.
	GPUCountEnv = "ELASTICRUN_GPU_COUNT"
	// HeartbeatEnv has the path of a file that a worker may touch to show that it makes progress, or into which it may
	// write the number of its step.
	HeartbeatEnv = "ELASTICRUN_HEARTBEAT_FILE"
	// PreemptFileEnv has the path of a file that exists once the job is preempted: a JSON object. A training loop may
	// look for it at every step.
	PreemptFileEnv = "ELASTICRUN_PREEMPT_FILE"
	// ControlFileEnv has the path of a file into which a worker may write words for the launcher, one a line.
	ControlFileEnv = "ELASTICRUN_CONTROL_FILE"
)

// OMPDefault applies a rule of torchrun: with more than one worker on a node, OMP_NUM_THREADS is set to 1 unless it is
// set. applied reports whether OMPDefault has set it.
func OMPDefault(env []string, localWorldSize int) (out []string, applied bool) {
	if _, set := lookup(env, OMPThreadsEnv); set || localWorldSize <= 1 {
		return env, false
	}
	return append(slices.Clip(env), OMPThreadsEnv+"=1"), true
}

// The variables with the path prefix of the dumps of NCCL's flight recorder, which appends the rank. oldTraceEnv is
// torch's older name.
const (
	traceEnv    = "TORCH_FR_DUMP_TEMP_FILE"
	oldTraceEnv = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
)

// ownTraces reports whether the launcher, and not the user, chooses where the flight recorder's dumps go.
func ownTraces(env []string) bool {
	_, set := lookup(env, traceEnv)
	_, setOld := lookup(env, oldTraceEnv)
	return !set && !setOld
}

// workerEnv returns the environment of one worker: in.Env, and over it the variables that depend on the worker or the
// round (torch 2.14, torch/distributed/elastic/agent/server/local_elastic_agent.py). Those that begin with ELASTICRUN_
// are not torch's. ELASTICRUN_ROUND counts all rounds, charged or not.
func workerEnv(spec WorkerSpec, w Worker, in StartInput) ([]string, error) {
	round, files := in.Round, in.Files[w.LocalRank]
	vars := [][2]string{
		{"LOCAL_RANK", strconv.Itoa(w.LocalRank)},
		{"RANK", strconv.Itoa(w.GlobalRank)},
		{"GROUP_RANK", strconv.Itoa(round.Rank)},
		{"ROLE_RANK", strconv.Itoa(w.RoleRank)},
		{"ROLE_NAME", spec.Role},
		{"LOCAL_WORLD_SIZE", strconv.Itoa(spec.LocalWorldSize)},
		{"WORLD_SIZE", strconv.Itoa(w.WorldSize)},
		{"GROUP_WORLD_SIZE", strconv.Itoa(round.WorldSize)},
		{"ROLE_WORLD_SIZE", strconv.Itoa(w.RoleWorldSize)},
		{"MASTER_ADDR", round.MasterAddr},
		{"MASTER_PORT", strconv.Itoa(round.MasterPort)},
		{"TORCHELASTIC_RESTART_COUNT", strconv.Itoa(round.Restarts)},
		{"TORCHELASTIC_MAX_RESTARTS", strconv.Itoa(spec.MaxRestarts)},
		{"TORCHELASTIC_RUN_ID", in.RunID},
		{"TORCHELASTIC_USE_AGENT_STORE", pythonBool(round.UseAgentStore)},
		{"TORCHELASTIC_ERROR_FILE", files.Error},
		{"ELASTICRUN_ROUND", strconv.Itoa(round.Number)},
	}
	if path := heartbeatFile(spec, in, w.LocalRank); path != "" {
		vars = append(vars, [2]string{HeartbeatEnv, path})
	}
	if in.WorkerDir != "" {
		vars = append(vars, [2]string{PreemptFileEnv, preemptFile(in.WorkerDir, round.Number)},
			[2]string{ControlFileEnv, controlFile(in.WorkerDir, round.Number, w.LocalRank)})
	}
	if _, set := lookup(in.Env, "TORCH_NCCL_ASYNC_ERROR_HANDLING"); !set {
		vars = append(vars, [2]string{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"})
	}
	if files.TracePrefix != "" && ownTraces(in.Env) {
		vars = append(vars, [2]string{traceEnv, files.TracePrefix}, [2]string{oldTraceEnv, files.TracePrefix})
	}
	if spec.VirtualLocalRank {
		own, err := virtualDevice(spec, in.Env, w.LocalRank)
		if err != nil {
			return nil, err
		}
		vars = append(vars, own...)
	}
	return overlay(in.Env, vars), nil
}

// overlay sets vars over base. The last value of a name wins, and no name occurs twice.
func overlay(base []string, vars [][2]string) []string {
	value := make(map[string]string, len(vars))
	var order []string
	for _, v := range vars {
		if _, seen := value[v[0]]; !seen {
			order = append(order, v[0])
		}
		value[v[0]] = v[1]
	}
	out := make([]string, 0, len(base)+len(order))
	for _, kv := range base {
		name, _, _ := strings.Cut(kv, "=")
		if _, replaced := value[name]; !replaced {
			out = append(out, kv)
		}
	}
	for _, name := range order {
		out = append(out, name+"="+value[name])
	}
	return out
}

// lookup returns the value of a variable. The last of several wins, as in a shell.
func lookup(env []string, name string) (string, bool) {
	for _, kv := range slices.Backward(env) {
		if v, found := strings.CutPrefix(kv, name+"="); found {
			return v, true
		}
	}
	return "", false
}

func pythonBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}
