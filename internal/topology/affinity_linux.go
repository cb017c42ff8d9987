package topology

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Affinity returns the CPUs that this process may run on, in ascending order. It respects the cpuset of a scheduler
// or a container, but not a CPU quota (see [CPUs]).
func Affinity() ([]int, error) {
	// The kernel refuses a mask that is shorter than its own. No kernel has more than maxCPU CPUs.
	set := unix.NewCPUSet(maxCPU)
	if err := unix.SchedGetaffinityDynamic(0, set); err != nil {
		return nil, fmt.Errorf("read the CPU affinity of this process: %w", err)
	}
	var cpus []int
	for cpu := range maxCPU + 1 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}
