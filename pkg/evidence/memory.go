package evidence

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Memory is what the kernel tells of this process' memory cgroup, in which workers are, too. The zero value knows nothing.
type Memory struct {
	Path  string // of the cgroup in the file system; empty where none is known
	Kills int64  // processes of it that an OOM killer has taken so far
	Limit int64  // the tightest limit of the cgroup and those above, in bytes; 0 for none
	Owner string // the cgroup that has the limit
	// Below are the cgroups below it of which an OOM killer has taken processes that Kills does not count.
	Below map[string]groupKills
}

// ReadMemory reads the memory cgroup of this process in the file system of the machine, as os.DirFS("/").
func ReadMemory(root fs.FS) Memory {
	groups, err1 := fs.ReadFile(root, "proc/self/cgroup")
	mounts, err2 := fs.ReadFile(root, "proc/self/mountinfo")
	if err1 != nil || err2 != nil {
		return Memory{}
	}
	top, dir, v2, own := memoryCgroup(string(groups), string(mounts))
	if dir == "" {
		return Memory{}
	}
	events, limit := "memory.oom_control", "memory.limit_in_bytes"
	if v2 {
		events, limit = "memory.events", "memory.max"
	}
	m := Memory{Path: dir, Kills: -1}
	if data, err := fs.ReadFile(root, strings.TrimPrefix(path.Join(dir, events), "/")); err == nil {
		m.Kills = counter(string(data), "oom_kill")
	}
	if m.Kills < 0 {
		return Memory{}
	}
	if own {
		m.Below = killsBelow(root, dir, events, limit)
	}
	for at := dir; ; at = path.Dir(at) {
		if n := limitOf(root, at, limit); n > 0 && (m.Limit == 0 || n < m.Limit) {
			m.Limit, m.Owner = n, at
		}
		if at == top || len(at) <= len(top) {
			return m
		}
	}
}

// counter returns the number after name in lines of names and numbers; -1 where it is not there.
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

// memoryCgroup finds the memory cgroup in /proc/self/cgroup and /proc/self/mountinfo: where its hierarchy is mounted, and its own
// folder, which is empty where there is none. Version 1 comes first: where both are mounted, it has the controller. own says that a cgroup's
// count of OOM kills leaves out those of the cgroups below: in version 2 only where it is mounted so.
func memoryCgroup(groups, mounts string) (top, dir string, v2, own bool) {
	var v1Path, v2Path string
	for line := range strings.Lines(groups) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		switch {
		case len(f) != 3:
		case f[0] == "0" && f[1] == "":
			v2Path = f[2]
		case hasWord(f[1], "memory"):
			v1Path = f[2]
		}
	}
	for line := range strings.Lines(mounts) {
		// 36 35 98:0 /root /mount/point rw,noatime master:1 - type source options
		mount, file, found := strings.Cut(strings.TrimRight(line, "\n"), " - ")
		m, f := strings.Fields(mount), strings.Fields(file)
		if !found || len(m) < 5 || len(f) < 3 {
			continue
		}
		within := func(group string) string {
			if rest, below := strings.CutPrefix(group, strings.TrimSuffix(m[3], "/")); below {
				group = rest
			}
			return path.Join(m[4], group)
		}
		switch {
		case f[0] == "cgroup" && v1Path != "" && hasWord(f[2], "memory"):
			return m[4], within(v1Path), false, true
		case f[0] == "cgroup2" && v1Path == "" && v2Path != "" && dir == "":
			top, dir, v2, own = m[4], within(v2Path), true, hasWord(f[2], "memory_localevents")
		}
	}
	return top, dir, v2, own
}

func hasWord(list, word string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if one == word {
			return true
		}
	}
	return false
}

// OOM says whether the OOM killer took a worker that SIGKILL has ended, seen at that time. before and after are from before its
// start and after its end, kills what the kernel's log has in between; readable says that the log could be read.
func OOM(pid int, at time.Time, before, after Memory, kills []OOMKill, readable bool) (Finding, bool) {
	counted := before.Path != "" && before.Path == after.Path
	moved, where := after.since(before)
	limit := ""
	if where.Limit > 0 {
		limit = fmt.Sprintf("memory limit %s of %s", size(where.Limit), where.Owner)
	}
	for _, k := range kills {
		if k.PID != pid || counted && moved <= 0 { // the log has the pids of the machine, which in a container are others'
			continue
		}
		if !k.Cgroup {
			limit = "the machine is out of memory"
		}
		return Finding{OOMKilled, at, join("killed by the OOM killer: ", limit,
			fmt.Sprintf("%s in use by pid %d (%s)", size(k.RSS), k.PID, k.Name))}, true
	}
	if !counted || moved <= 0 {
		return Finding{}, false
	}
	if readable && int64(len(kills)) >= moved { // it has taken others
		return Finding{}, false
	}
	return Finding{OOMKilled, at, join("probably killed by the OOM killer, which has taken ",
		fmt.Sprintf("%d processes of cgroup %s meanwhile", moved, where.Path), limit)}, true
}

// killedChild is how torch's DataLoader tells that one of its processes was sent SIGKILL, or has ended it does not know how.
var killedChild = lazily(`killed by signal: Killed|DataLoader worker \(pid.* exited unexpectedly|^` + goneLoader)

// OOMOfChild says whether the OOM killer may have taken a process that a worker had started, and the worker has ended of that: a shell tells it by its
// exit code, torch by an exception. workers are the pids of the workers themselves; for the rest see [OOM].
func OOMOfChild(c Case, before, after Memory, kills []OOMKill, workers map[int]bool) (Finding, bool) {
	speaks := c.Signal == 0 && c.Code == 128+int(syscall.SIGKILL) || c.ErrorFile != nil && killedChild().MatchString(c.ErrorFile.Text)
	for _, f := range c.Shown {
		speaks = speaks || killedChild().MatchString(f.Text)
	}
	moved, where := after.since(before)
	for _, k := range kills {
		if workers[k.PID] {
			moved--
		}
	}
	if !speaks || before.Path == "" || before.Path != after.Path || moved <= 0 {
		return Finding{}, false
	}
	return Finding{OOMKilled, c.At, fmt.Sprintf("the OOM killer has probably taken a process of this worker: %d of cgroup %s meanwhile", moved, where.Path)}, true
}

func join(head, first, second string) string {
	if first == "" || second == "" {
		return head + first + second
	}
	return head + first + "; " + second
}

// size writes a number of bytes for people.
func size(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	default:
		return fmt.Sprintf("%d KiB", n>>10)
	}
}
