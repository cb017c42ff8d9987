//go:build !linux

package topology

import "runtime"

// Affinity returns all CPUs of the machine, because a process cannot read its affinity on this system.
func Affinity() ([]int, error) {
	cpus := make([]int, runtime.NumCPU())
	for i := range cpus {
		cpus[i] = i
	}
	return cpus, nil
}
