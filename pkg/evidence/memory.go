package evidence

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/bytesize"
	"github.com/elasticrun/elasticrun/internal/cgroup"
	"github.com/elasticrun/elasticrun/pkg/failure"
)

// Memory is what the kernel reports about the memory cgroup of this process and its workers. The zero value is for an
// unknown cgroup.
type Memory struct {
	Path  string // of the cgroup in the file system; empty if unknown
	Kills int64  // processes in it that the OOM killer has killed so far
	Limit int64  // the tightest limit of the cgroup and those above, in bytes; 0 for none
	Owner string // the cgroup that has the limit
	// Below are the cgroups below it in which the OOM killer has killed processes that Kills does not count.
	Below map[string]groupKills
}

// ReadMemory reads the memory cgroup of this process in the file system of the machine, as os.DirFS("/").
func ReadMemory(root fs.FS) Memory {
	groups := cgroup.Find(root, "memory")
	if len(groups) == 0 {
		return Memory{}
	}
	// The first group is of version 1 if that version has the memory controller. A cgroup's count of OOM kills leaves out
	// the cgroups below it: always in version 1, in version 2 only with memory_localevents.
	group := groups[0]
	events, limit, own := "memory.oom_control", "memory.limit_in_bytes", true
	if group.V2 {
		events, limit, own = "memory.events", "memory.max", slices.Contains(group.Options, "memory_localevents")
	}
	m := Memory{Path: group.Dir, Kills: counter(cgroup.Read(root, group.Dir, events), "oom_kill")}
	if m.Kills < 0 {
		return Memory{}
	}
	if own {
		m.Below = killsBelow(root, group.Dir, events, limit)
	}
	for dir := range group.Dirs() {
		if n := limitOf(root, dir, limit); n > 0 && (m.Limit == 0 || n < m.Limit) {
			m.Limit, m.Owner = n, dir
		}
	}
	return m
}

// counter returns the number after name in lines of names and numbers; -1 if there is none.
func counter(text, name string) int64 {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}

// FindOOM reports whether the FindOOM killer killed a worker that SIGKILL ended at the given time. before was read
// before its start, after was read after its end. kills are the kills in the kernel's log between the two; readable
// says that the log could be read.
func FindOOM(pid int, at time.Time, before, after Memory, kills []OOMKill, readable bool) (failure.Finding, bool) {
	counted := before.Path != "" && before.Path == after.Path
	killed, where := after.since(before)
	limit := ""
	if where.Limit > 0 {
		limit = fmt.Sprintf("memory limit %s of %s", bytesize.Format(where.Limit), where.Owner)
	}
	for _, k := range kills {
		if k.PID != pid || counted && killed <= 0 { // in a container, the machine's pids belong to other processes
			continue
		}
		if !k.Cgroup {
			limit = "the machine is out of memory"
		}
		return finding(failure.OOMKilled, at, join("killed by the OOM killer: ", limit,
			fmt.Sprintf("%s in use by pid %d (%s)", bytesize.Format(k.RSS), k.PID, k.Name))), true
	}
	if !counted || killed <= 0 {
		return failure.Finding{}, false
	}
	if readable && int64(len(kills)) >= killed { // it has killed others
		return failure.Finding{}, false
	}
	return finding(failure.OOMKilled, at, join("probably killed by the OOM killer, which killed ",
		fmt.Sprintf("%d processes in cgroup %s meanwhile", killed, where.Path), limit)), true
}

// killedChild matches how torch's DataLoader reports that one of its processes got SIGKILL or ended for an unknown
// reason (torch 2.14, torch/utils/data/dataloader.py).
var killedChild = lazily(`killed by signal: Killed|DataLoader worker \(pid.* exited unexpectedly|^` + goneLoader)

// OOMOfChild reports whether a worker has probably ended because the OOM killer killed a process that it had started. A
// shell reports that with its exit code, torch with an exception. workers are the pids of the workers themselves. The
// other parameters are those of [FindOOM].
func OOMOfChild(c Case, before, after Memory, kills []OOMKill, workers map[int]bool) (failure.Finding, bool) {
	reported := c.Signal == 0 && c.Code == 128+int(syscall.SIGKILL) || c.ErrorFile != nil &&
		killedChild().MatchString(c.ErrorFile.Text)
	for _, f := range c.Shown {
		reported = reported || killedChild().MatchString(f.Text)
	}
	killed, where := after.since(before)
	for _, k := range kills {
		if workers[k.PID] {
			killed--
		}
	}
	if !reported || before.Path == "" || before.Path != after.Path || killed <= 0 {
		return failure.Finding{}, false
	}
	return finding(failure.OOMKilled, c.At,
		fmt.Sprintf("the OOM killer has probably killed a process of this worker: %d in cgroup %s meanwhile", killed,
			where.Path)), true
}

func join(head, first, second string) string {
	if first == "" || second == "" {
		return head + first + second
	}
	return head + first + "; " + second
}
