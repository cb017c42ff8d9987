package agent

import (
	"fmt"
	"strconv"
	"strings"
)

// The variables by which CUDA and HIP select devices.
const (
	cudaDevicesEnv = "CUDA_VISIBLE_DEVICES"
	hipDevicesEnv  = "HIP_VISIBLE_DEVICES"
)

// virtualDevice returns the variables that give a worker with a virtual local rank one device: its entry in the
// inherited list, or the one with its local rank if there is no list. They are CUDA_VISIBLE_DEVICES, and also
// HIP_VISIBLE_DEVICES if that is the inherited list, as in torch 2.15 torch/distributed/elastic/agent/server/
// local_elastic_agent.py.
//
// Torch has no variable for Intel's GPUs, so that all its workers use the first. Here they get the GPUs of the spec.
func virtualDevice(spec WorkerSpec, env []string, localRank int) ([][2]string, error) {
	vars := [][2]string{{"LOCAL_RANK", "0"}}
	if spec.XPUs != nil {
		vars = append(vars, [2]string{"ZE_AFFINITY_MASK", spec.XPUs[localRank]})
		if _, set := lookup(env, "ONEAPI_DEVICE_SELECTOR"); set {
			// The inherited selector has chosen the GPUs of the spec. Its numbers do not hold for a single device.
			vars = append(vars, [2]string{"ONEAPI_DEVICE_SELECTOR", "level_zero:gpu"})
		}
		return vars, nil
	}
	name, list, set := VisibleDevices(env)
	device := strconv.Itoa(localRank)
	if set {
		if localRank >= len(list) {
			return nil, fmt.Errorf("--virtual-local-rank: %s=%q has no device for local rank %d", name,
				strings.Join(list, ","), localRank)
		}
		device = strings.TrimSpace(list[localRank])
	}
	vars = append(vars, [2]string{cudaDevicesEnv, device})
	if name == hipDevicesEnv {
		vars = append(vars, [2]string{hipDevicesEnv, device})
	}
	return vars, nil
}

// VisibleDevices returns the list of devices that an environment allows, as torchrun reads it for virtual local ranks,
// and the name of the variable that has it: HIP_VISIBLE_DEVICES unless it is empty, else CUDA_VISIBLE_DEVICES. set
// reports whether that variable is set; an empty value gives a nil list.
func VisibleDevices(env []string) (name string, list []string, set bool) {
	name = hipDevicesEnv
	value, _ := lookup(env, name)
	if set = value != ""; !set {
		name = cudaDevicesEnv
		value, set = lookup(env, name)
	}
	if value == "" {
		return name, nil, set
	}
	return name, strings.Split(value, ","), set
}
