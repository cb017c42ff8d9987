package topology

import (
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/internal/cgroup"
)

// CPUs returns how many CPUs a job started by this process may use at a time, at least 1: the smaller of
// its affinity and the CPU quota of its cgroup and of every cgroup above that one (versions 1 and 2), a
// fraction of a CPU counted as a whole one. torchrun's `--nproc-per-node cpu` counts the machine's CPUs instead,
// which starts 128 workers in a container that may use four. Go's GOMAXPROCS will not do either: it is
// never 1 because of a quota, and users set it.
func CPUs() int {
	count := runtime.NumCPU()
	if cpus, err := Affinity(); err == nil {
		count = len(cpus)
	}
	return limitCPUs(os.DirFS("/"), count)
}

// limitCPUs lowers count to the quotas found under root, the root of the file system. Files that are absent
// or unreadable limit nothing.
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

// readString reads a small file whose absence means the same as its emptiness.
func readString(fsys fs.FS, name string) string {
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		return ""
	}
	return string(data)
}
