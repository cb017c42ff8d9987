//go:build !linux

package topology

import "runtime"

// Affinity returns every CPU of the machine: this system has no affinity that a process can read.
func Affinity() ([]int, error) {
	cpus := make([]int, runtime.NumCPU())
	for i := range cpus {
		cpus[i] = i
	}
	return cpus, nil
}
