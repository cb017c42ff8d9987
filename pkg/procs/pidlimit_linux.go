package procs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// pidLimit is a limit on processes and threads: a cgroup's, or the user's.
type pidLimit struct {
	cgroup    string // its folder; empty for the user's limit
	max, used int
}

func (l pidLimit) room() int { return l.max - l.used }

func (l pidLimit) String() string {
	if l.cgroup == "" {
		return fmt.Sprintf("the user may have %d processes and threads (ulimit -u), of which %d are in use", l.max, l.used)
	}
	return fmt.Sprintf("cgroup %s allows %d processes and threads (pids.max), of which %d are in use", l.cgroup, l.max, l.used)
}

// tightestPIDLimit returns the limit with the least room of those that the cgroup of this process and those above have.
// root is the machine's file system.
func tightestPIDLimit(root fs.FS) (tightest pidLimit, found bool) {
	groups, err1 := fs.ReadFile(root, "proc/self/cgroup")
	mounts, err2 := fs.ReadFile(root, "proc/self/mountinfo")
	if err1 != nil || err2 != nil {
		return pidLimit{}, false
	}
	number := func(dir, name string) (int, bool) {
		data, err := fs.ReadFile(root, strings.TrimPrefix(path.Join(dir, name), "/"))
		n, bad := strconv.Atoi(strings.TrimSpace(string(data))) // "max" is no limit
		return n, err == nil && bad == nil
	}
	top, dir := pidsCgroup(string(groups), string(mounts))
	for at := dir; len(at) >= len(top) && at != ""; at = path.Dir(at) {
		most, limited := number(at, "pids.max")
		used, counted := number(at, "pids.current")
		if l := (pidLimit{at, most, used}); limited && counted && (!found || l.room() < tightest.room()) {
			tightest, found = l, true
		}
		if at == path.Dir(at) {
			break
		}
	}
	return tightest, found
}

// pidsCgroup finds the cgroup that counts processes in /proc/self/cgroup and /proc/self/mountinfo (cgroups(7), proc(5)):
// where its hierarchy is mounted, and its folder, which is empty where there is none. Where both versions are mounted,
// version 1 has the controller.
func pidsCgroup(groups, mounts string) (top, dir string) {
	var v1, v2 string
	for line := range strings.Lines(groups) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3) // 8:pids:/path, 0::/path
		switch {
		case len(f) != 3:
		case f[0] == "0" && f[1] == "":
			v2 = f[2]
		case slices.Contains(strings.Split(f[1], ","), "pids"):
			v1 = f[2]
		}
	}
	for line := range strings.Lines(mounts) {
		// 36 35 98:0 /root /mount/point rw,noatime master:1 - type source options
		mount, file, _ := strings.Cut(strings.TrimRight(line, "\n"), " - ")
		if !strings.HasPrefix(file, "cgroup") {
			continue
		}
		m, f := strings.Fields(mount), strings.Fields(file)
		if len(m) < 5 || len(f) < 3 {
			continue
		}
		within := func(group string) string {
			return path.Join(m[4], strings.TrimPrefix(group, strings.TrimSuffix(m[3], "/")))
		}
		switch {
		case f[0] == "cgroup" && v1 != "" && slices.Contains(strings.Split(f[2], ","), "pids"):
			return m[4], within(v1)
		case f[0] == "cgroup2" && v1 == "" && v2 != "" && dir == "":
			top, dir = m[4], within(v2)
		}
	}
	return top, dir
}

// checkRoom returns a [*ResourceError] where a limit has no room for those of the needed tasks that this process has not
// made yet. A limit that it cannot see it lets pass.
func checkRoom(need taskNeed) error {
	more := need.total() - ownThreads()
	if l, limited := tightestPIDLimit(os.DirFS("/")); limited && l.room() < more {
		return noRoom(l, need, more)
	}
	if l, limited := tightUserLimit(more); limited && l.room() < more {
		return noRoom(l, need, more)
	}
	return nil
}

// noRoom is the error of a limit that has no room for so many more tasks.
func noRoom(l pidLimit, need taskNeed, more int) error {
	return &ResourceError{Problem: fmt.Sprintf("%v; %s", l, need.advice(l.used, more)), Err: syscall.EAGAIN}
}

// ownThreads is how many threads this process has; 0 where it is not known.
func ownThreads() int {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	p, _ := parseStat(stat)
	return p.threads
}

// explainFork adds to the error of a fork which limit it has met, as far as that can be seen.
func explainFork(err error) error {
	if !errors.Is(err, syscall.EAGAIN) {
		return err
	}
	l, limited := tightestPIDLimit(os.DirFS("/"))
	user := uint64(unix.RLIM_INFINITY)
	if most, found := userTaskMax(); found {
		user = uint64(most)
	}
	return fmt.Errorf("%w: %s", err, forkLimit(l, limited, user))
}

// nearLimit is how much room a limit may have after it refused a process: some have ended since.
const nearLimit = 16

// forkLimit names the limit that has refused a process: of the cgroup l, if limited, or of the user.
func forkLimit(l pidLimit, limited bool, user uint64) string {
	switch {
	case limited && (l.room() <= nearLimit || user == unix.RLIM_INFINITY):
		return l.String()
	case user != unix.RLIM_INFINITY:
		return fmt.Sprintf("the user may have %d processes and threads (ulimit -u)", user)
	default:
		return "the machine has no room for another process (kernel.threads-max, kernel.pid_max)"
	}
}
