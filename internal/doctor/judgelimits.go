package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/internal/bytesize"
	"github.com/elasticrun/elasticrun/internal/plural"
)

const (
	// fewFiles is fewer open files than a worker with data loaders may need.
	fewFiles = 4096
	// threadsPerWorker estimates the threads of a torch worker with its libraries and a few data loaders.
	threadsPerWorker = 256
	// littleLocked is too little locked memory for RDMA, which registers memory with the device.
	littleLocked = 64 * mib
)

func limits(l Limits, workers int) []Check {
	files := Check{Name: "open files", Status: OK, Value: "at most " + count(l.NoFile)}
	if l.NoFile > 0 && l.NoFile < fewFiles {
		files.Status, files.Advice = Warn, "raise the hard limit (ulimit -Hn): data loaders and connections need files"
	}
	locked := Check{Name: "locked memory", Status: OK, Value: "at most " + size(l.MemLock)}
	if l.RDMA && l.MemLock < littleLocked {
		locked.Status, locked.Advice = Warn, "NCCL over InfiniBand or RoCE registers memory: ulimit -l unlimited (docker "+
			"run --ulimit memlock=-1)"
	}
	cores := Check{Name: "core files", Status: OK, Value: fmt.Sprintf("at most %s, by pattern %q", size(l.Core),
		l.CorePattern)}
	if l.Core == 0 && !strings.HasPrefix(l.CorePattern, "|") {
		cores.Value = "a crash writes none"
	}
	return []Check{files, locked, cores, processes(l, workers)}
}

// processes judges the limits on processes and threads, which the kernel counts together.
func processes(l Limits, workers int) Check {
	c := Check{Name: "processes", Status: OK, Value: "pids up to " + count(l.PIDMax)}
	free, advice := l.PIDMax, "raise kernel.pid_max"
	if l.CgroupPIDs > 0 && l.CgroupPIDs != unlimited {
		c.Value += fmt.Sprintf(", %d of this cgroup's %d in use", l.CgroupPIDsUsed, l.CgroupPIDs)
		if left := l.CgroupPIDs - min(l.CgroupPIDs, l.CgroupPIDsUsed); free == 0 || left < free {
			free, advice = left, "raise the cgroup's pids.max (docker run --pids-limit)"
		}
	}
	if need := uint64(workers) * threadsPerWorker; free > 0 && free < need {
		c.Status, c.Advice = Warn, fmt.Sprintf("%s may need %d: %s", plural.Of(workers, "worker"), need, advice)
	}
	return c
}

// memory judges the memory for workers. The OOM killer of a cgroup is the most common cause of a failed job.
func memory(m Memory, workers int) Check {
	c := Check{Name: "memory", Status: OK, Value: fmt.Sprintf("%s available of %s", size(m.Available), size(m.Total))}
	free, advice := m.Available, "the kernel kills workers when it is used up: start fewer workers, or end other programs"
	if m.CgroupMax > 0 && m.CgroupMax < m.Total {
		left := m.CgroupMax - min(m.CgroupMax, m.CgroupUsed)
		c.Value += fmt.Sprintf("; this cgroup's limit is %s, of which %s are free", size(m.CgroupMax), size(left))
		if left < free || free == 0 {
			free, advice = left, "the kernel kills workers when it is used up: raise the container's or the job's limit"
		}
	}
	if free > 0 && free < uint64(workers)*gib {
		c.Status, c.Advice = Warn, fmt.Sprintf("less than 1 GiB for each worker; %s", advice)
	}
	return c
}

func count(n uint64) string {
	switch n {
	case 0:
		return "an unknown number"
	case unlimited:
		return "any number"
	}
	return strconv.FormatUint(n, 10)
}

func size(n uint64) string {
	if n == unlimited {
		return "any amount"
	}
	return bytesize.Format(n)
}
