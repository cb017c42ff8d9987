package evidence

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/bytesize"
	"github.com/elasticrun/elasticrun/internal/cgroup"
	"github.com/elasticrun/elasticrun/internal/lazyregexp"
	"github.com/elasticrun/elasticrun/internal/plural"
	"github.com/elasticrun/elasticrun/pkg/failure"
)

// Memory is what the kernel reports about the memory cgroup of this process and its workers. The zero value is for an
// unknown cgroup.
type Memory struct {
	Path  string // of the cgroup in the file system; empty if unknown
	Kills int64  // processes in it that the OOM killer has killed so far
	Whole bool   // Kills includes the cgroups below it, if there are any
	Limit int64  // the tightest limit of the cgroup and those above, in bytes; 0 for none
	Owner string // the cgroup that has the limit
	// Below are the cgroups below it in which the OOM killer has killed processes that Kills does not count.
	Below map[string]groupKills
	// Machine counts all processes of the machine that the OOM killer has killed since boot; nil if unknown.
	Machine *int64
}

// ReadMemory reads the memory cgroup of this process in the file system of the machine, as os.DirFS("/").
func ReadMemory(root fs.FS) Memory {
	m := readGroup(root)
	if n := counter(cgroup.Read(root, "/proc", "vmstat"), "oom_kill"); n >= 0 {
		m.Machine = &n
	}
	return m
}

func readGroup(root fs.FS) Memory {
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
	m := Memory{Path: group.Dir, Whole: !own, Kills: counter(cgroup.Read(root, group.Dir, events), "oom_kill")}
	if m.Kills < 0 {
		return Memory{}
	}
	if own {
		var some bool
		m.Below, some = killsBelow(root, group.Dir, events, limit)
		m.Whole = !some
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

// KernelReport is what the kernel knows about one start of workers: its memory counters before the start and after the
// end of workers, and what it logged between the two.
type KernelReport struct {
	Before, After Memory
	Log           KernelLog
}

// OOM says that the OOM killer killed a worker, or a process that the worker had started; nil if it killed neither. pid
// is the worker's, pids are those of all workers of the start, by local rank.
func (r KernelReport) OOM(c Case, pid int, pids map[int]int) *failure.Finding {
	if c.Signal == syscall.SIGKILL {
		return r.workerOOM(pid, c.At)
	}
	return r.childOOM(c, pids)
}

// NotOOM ends the text of a worker that SIGKILL ended and that the OOM killer has certainly not killed.
const NotOOM = ", not by the kernel's OOM killer"

// AboutOOM returns the end of the text of a worker that SIGKILL ended, if [KernelReport.OOM] does not blame the OOM
// killer. It is [NotOOM] if a count that includes the workers has not changed, because the kernel counts before it
// sends SIGKILL. If only the machine's count is known, and has changed, the text names the number of kills.
func (r KernelReport) AboutOOM() string {
	killed, _, counted := r.kills()
	if counted && killed <= 0 && r.Before.Whole && r.After.Whole {
		return NotOOM
	}
	before, after := r.Before.Machine, r.After.Machine
	switch {
	case before == nil || after == nil:
	case *before == *after:
		return NotOOM
	case !counted && !r.Log.Readable:
		return fmt.Sprintf(", while the kernel's OOM killer killed %s on this machine",
			plural.Of(int(*after-*before), "process"))
	}
	return ""
}

// kills returns how many processes the OOM killer has killed, and the cgroup that lost most of them. It cannot count
// them if the workers' cgroup is unknown.
func (r KernelReport) kills() (killed int64, where Memory, counted bool) {
	killed, where = r.After.since(r.Before)
	return killed, where, r.Before.Path != "" && r.Before.Path == r.After.Path
}

// workerOOM is OOM for a worker that SIGKILL ended at the given time.
func (r KernelReport) workerOOM(pid int, at time.Time) *failure.Finding {
	killed, where, counted := r.kills()
	limit := ""
	if where.Limit > 0 {
		limit = fmt.Sprintf("memory limit %s of %s", bytesize.Format(where.Limit), where.Owner)
	}
	for _, k := range r.Log.Kills {
		if k.PID != pid || counted && killed <= 0 { // in a container, the machine's pids belong to other processes
			continue
		}
		if !k.Cgroup {
			limit = "the machine is out of memory"
		}
		return new(finding(failure.OOMKilled, at, join("killed by the OOM killer: ", limit,
			fmt.Sprintf("%s in use by pid %d (%s)", bytesize.Format(k.RSS), k.PID, k.Name))))
	}
	if !counted || killed <= 0 || r.Log.Readable && int64(len(r.Log.Kills)) >= killed { // all kills hit other processes
		return nil
	}
	return new(finding(failure.OOMKilled, at, join("probably killed by the OOM killer, which killed ",
		fmt.Sprintf("%s in cgroup %s meanwhile", plural.Of(int(killed), "process"), where.Path), limit)))
}

// killedChild matches how torch's DataLoader reports that one of its processes got SIGKILL or ended for an unknown
// reason (torch 2.14, torch/utils/data/dataloader.py).
var killedChild = lazyregexp.New(`killed by signal: Killed|DataLoader worker \(pid.* exited unexpectedly|` +
	`^` + goneLoader)

// childOOM is OOM for a worker that has probably ended because the OOM killer killed a process that it had started. A
// shell reports that with its exit code, torch with an exception.
func (r KernelReport) childOOM(c Case, pids map[int]int) *failure.Finding {
	reported := c.Signal == 0 && c.Code == 128+int(syscall.SIGKILL) || c.ErrorFile != nil &&
		killedChild().MatchString(c.ErrorFile.Text)
	for _, f := range c.Shown {
		reported = reported || killedChild().MatchString(f.Text)
	}
	killed, where, counted := r.kills()
	workers := slices.Collect(maps.Values(pids))
	for _, k := range r.Log.Kills {
		if slices.Contains(workers, k.PID) {
			killed--
		}
	}
	if !reported || !counted || killed <= 0 {
		return nil
	}
	return new(finding(failure.OOMKilled, c.At,
		fmt.Sprintf("the OOM killer has probably killed a process of this worker: %d in cgroup %s meanwhile", killed,
			where.Path)))
}

func join(head, first, second string) string {
	if first == "" || second == "" {
		return head + first + second
	}
	return head + first + "; " + second
}
