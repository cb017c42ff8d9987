package topology

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Affinity returns the CPUs that this process may run on, in ascending order. A scheduler's or a
// container's cpuset shows here; a CPU quota does not (see CPUs).
func Affinity() ([]int, error) {
	// The kernel refuses a mask shorter than its own; maxCPU is longer than any.
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
