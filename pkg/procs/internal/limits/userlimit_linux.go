package limits

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// The kernel counts the tasks (processes, threads and zombies) of each real user id. When a process makes another
// task, the kernel compares the count with the RLIMIT_NPROC of that process. The count covers the whole machine or
// container, and no system call returns it.

// userTaskMax returns how many tasks the user may have. limited is false if the kernel does not limit this process.
func userTaskMax() (most int, limited bool) {
	most, limited = taskRlimit()
	return most, limited && !isExempt()
}

// taskRlimit returns RLIMIT_NPROC if it is finite.
func taskRlimit() (most int, finite bool) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &limit) != nil || limit.Cur == unix.RLIM_INFINITY {
		return 0, false
	}
	return int(min(limit.Cur, math.MaxInt32)), true
}

// isExempt reports whether this process may exceed RLIMIT_NPROC.
func isExempt() bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return os.Getuid() == 0
	}
	uids, err := os.ReadFile("/proc/self/uid_map")
	return mayExceed(os.Getuid(), status, uids, err == nil)
}

// mayExceed reports whether the kernel lets a process of user uid exceed RLIMIT_NPROC. It follows copy_process in the
// kernel's kernel/fork.c. status is the process's /proc/self/status. uids is its /proc/self/uid_map, if mapped is
// true. In a user namespace other than the initial one only the machine's root is exempt.
func mayExceed(uid int, status, uids []byte, mapped bool) bool {
	first := !mapped
	root := !mapped
	if f := bytes.Fields(uids); mapped && len(f) >= 3 && string(f[0]) == "0" && string(f[1]) == "0" {
		root = true
		first = string(f[2]) == strconv.FormatUint(math.MaxUint32, 10)
	}
	if uid == 0 && root {
		return true
	}
	caps, err := strconv.ParseUint(proctree.StatusField(status, "CapEff:"), 16, 64)
	return err == nil && first && caps&(1<<unix.CAP_SYS_RESOURCE|1<<unix.CAP_SYS_ADMIN) != 0
}

// tightUserLimit returns the user's limit if n more tasks might exceed it. It counts the user's tasks only if the
// machine has so many tasks that the limit could matter, because the count reads much of /proc. The count misses the
// user's tasks in other pid namespaces, and those of programs that changed their user (sudo).
func tightUserLimit(n int) (l pidLimit, found bool) {
	most, finite := taskRlimit()
	if !finite {
		return pidLimit{}, false
	}
	load, err := os.ReadFile("/proc/loadavg")
	all, known := machineTasks(string(load))
	if err == nil && known && most-all >= n || isExempt() || !proctree.ProcIsOurs() {
		return pidLimit{}, false
	}
	used, err := userTasks("/proc", os.Getuid())
	return pidLimit{max: most, used: used}, err == nil
}

// machineTasks reads the number of tasks of the machine from the text of /proc/loadavg (proc(5)).
func machineTasks(load string) (n int, known bool) {
	f := strings.Fields(load) // 0.20 0.18 0.12 1/80 11206
	if len(f) < 4 {
		return 0, false
	}
	_, all, _ := strings.Cut(f[3], "/")
	n, err := strconv.Atoi(all)
	return n, err == nil && n > 0
}

// userTasks counts the tasks of a real user id in the file system proc.
func userTasks(proc string, uid int) (n int, err error) {
	dir, err := os.Open(proc)
	if err != nil {
		return 0, fmt.Errorf("count the user's processes: %w", err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0, fmt.Errorf("count the user's processes: %w", err)
	}
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		at := path.Join(proc, name)
		var st syscall.Stat_t // the owner is the effective user id, which is faster to read than the real one
		if syscall.Stat(at, &st) != nil || int(st.Uid) != uid {
			continue
		}
		status, err := os.ReadFile(path.Join(at, "status"))
		owner, _, _ := strings.Cut(proctree.StatusField(status, "Uid:"), "\t") // the real user id
		if err != nil || owner != strconv.Itoa(uid) {
			continue // it has exited, or belongs to another user
		}
		if threads, err := strconv.Atoi(proctree.StatusField(status, "Threads:")); err == nil {
			n += threads
		}
	}
	return n, nil
}
