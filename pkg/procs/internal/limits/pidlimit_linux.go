package limits

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/cgroup"
	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// pidLimit is a limit on processes and threads, of a cgroup or of the user.
type pidLimit struct {
	cgroup    string // its folder; empty for the user's limit
	max, used int
}

func (l pidLimit) room() int { return l.max - l.used }

func (l pidLimit) String() string {
	if l.cgroup == "" {
		return fmt.Sprintf("the user may have %d processes and threads (ulimit -u), of which %d are in use", l.max, l.used)
	}
	return fmt.Sprintf("cgroup %s allows %d processes and threads (pids.max), of which %d are in use",
		l.cgroup, l.max, l.used)
}

// tightestPIDLimit returns the limit with the least room among the cgroup of this process and the cgroups above it.
// root is the machine's file system.
func tightestPIDLimit(root fs.FS) (tightest pidLimit, found bool) {
	groups := cgroup.Find(root, "pids")
	if len(groups) == 0 {
		return pidLimit{}, false
	}
	number := func(dir, name string) (int, bool) {
		n, err := strconv.Atoi(cgroup.Read(root, dir, name)) // "max" is no limit
		return n, err == nil
	}
	for dir := range groups[0].Dirs() { // the first group has the controller
		most, limited := number(dir, "pids.max")
		used, counted := number(dir, "pids.current")
		if l := (pidLimit{dir, most, used}); limited && counted && (!found || l.room() < tightest.room()) {
			tightest, found = l, true
		}
	}
	return tightest, found
}

// Check returns a problem, in one line, if a limit has no room for the needed tasks that this process has not made
// yet; otherwise it returns "". A limit that it cannot read counts as no limit.
func (n Need) Check() (problem string) {
	more := n.total() - proctree.OwnThreads()
	if l, limited := tightestPIDLimit(os.DirFS("/")); limited && l.room() < more {
		return noRoom(l, n, more)
	}
	if l, limited := tightUserLimit(more); limited && l.room() < more {
		return noRoom(l, n, more)
	}
	return ""
}

// noRoom returns the problem of a limit that has no room for more tasks.
func noRoom(l pidLimit, need Need, more int) string {
	return fmt.Sprintf("%v; %s", l, need.advice(l.used, more))
}

// ExplainFork adds the limit that was reached, if it can be found, to the error of a failed fork.
func ExplainFork(err error) error {
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

// nearLimit is how much room a limit may have after it refused a process, because some processes have exited since.
const nearLimit = 16

// forkLimit names the limit that refused a process: the cgroup's limit l, if limited is true, or the user's.
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
