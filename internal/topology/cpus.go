package topology

import (
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/internal/cgroup"
)

// CPUs returns the number of CPUs that a job of this process may use at a time, at least 1. That is the minimum of
// its affinity and of the CPU quotas of its cgroup and all cgroups above (versions 1 and 2). A fraction of a CPU
// counts as one.
//
// torchrun's --nproc-per-node cpu counts the machine's CPUs instead, which starts 128 workers in a container that may
// use four. Go's GOMAXPROCS is not suitable either: a quota never reduces it to 1, and users set it.
func CPUs() int {
	count := runtime.NumCPU()
	if cpus, err := Affinity(); err == nil {
		count = len(cpus)
	}
	return limitCPUs(os.DirFS("/"), count)
}

// limitCPUs reduces count to the quotas below root, the root of the file system. Files that are missing or unreadable
// do not limit it.
func limitCPUs(root fs.FS, count int) int {
	for _, group := range cgroup.Find(root, "cpu") {
		for dir := range group.Dirs() {
			if limit, ok := quota(root, dir, group.V2); ok {
				count = min(count, limit)
			}
		}
	}
	return max(count, 1)
}

// quota reads the CPU limit of one cgroup folder, in whole CPUs, rounded up; false if it has none.
func quota(root fs.FS, dir string, v2 bool) (int, bool) {
	// Microseconds of CPU time in each period of microseconds. "max" and -1 are no limit.
	limit, period, _ := strings.Cut(cgroup.Read(root, dir, "cpu.max"), " ")
	if !v2 {
		limit, period = cgroup.Read(root, dir, "cpu.cfs_quota_us"), cgroup.Read(root, dir, "cpu.cfs_period_us")
	}
	used, err := strconv.Atoi(limit)
	if err != nil || used <= 0 {
		return 0, false
	}
	each, err := strconv.Atoi(period)
	if err != nil || each <= 0 {
		return 0, false
	}
	return (used-1)/each + 1, true
}

// readString returns the content of a small file, or "" if it cannot be read.
func readString(fsys fs.FS, name string) string {
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		return ""
	}
	return string(data)
}
