package scheduler

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
)

// PortKey returns what the ports of a Slurm job follow from, by the run id that its agents have inferred; empty for other run ids.
func PortKey(runID string) string {
	key, found := strings.CutPrefix(runID, Slurm+"-")
	job, step, steps := strings.Cut(key, ".")
	step, _, _ = strings.Cut(step, ".") // what follows is how often the job was requeued
	if !found || !steps || !digits(job) || !digits(step) {
		return ""
	}
	return job + "." + step
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// Ports returns 8 different ports that follow from the key alone, so that all nodes of a job try the same ones, in the
// same order, and two jobs on one machine hardly ever do. They are in 20000-29999: from 32768 on Linux gives ports to
// outgoing connections, so that any of those may be taken for a moment. torch's own 29400 and 29500 are left to
// jobs that ask for them.
func Ports(key string) []int {
	const count, low, high = 8, 20000, 29999
	ports := make([]int, 0, count)
	for round := uint64(0); len(ports) < count; round++ {
		sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte(key), round))
		port := low + int(binary.BigEndian.Uint64(sum[:8])%(high-low+1))
		if port != 29400 && port != 29500 && !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports
}
