package topology

import (
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
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

// limitCPUs lowers count to the quotas found under root, the file system's root. Files that are absent
// or unreadable limit nothing.
func limitCPUs(root fs.FS, count int) int {
	for _, group := range cpuGroups(root) {
		for dir := group.leaf; ; dir = path.Dir(dir) {
			if limit, ok := quota(root, dir, group.v2); ok {
				count = min(count, limit)
			}
			if dir == group.top || dir == "." {
				break
			}
		}
	}
	return max(count, 1)
}

// cpuGroup is where one mounted hierarchy shows the cgroup of this process: limits apply from leaf up to
// top, the mount point. Both are paths within an fs.FS, without the leading slash.
type cpuGroup struct {
	leaf, top string
	v2        bool
}

// cpuGroups finds the hierarchies that can limit this process's CPU time. A machine in hybrid mode has
// one of each version.
func cpuGroups(root fs.FS) []cpuGroup {
	v1Path, v2Path := ownCgroups(readString(root, "proc/self/cgroup"))
	var groups []cpuGroup
	for line := range strings.Lines(readString(root, "proc/self/mountinfo")) {
		m, ok := parseMount(line)
		if !ok {
			continue
		}
		own := v2Path
		if m.fsType == "cgroup" {
			if !slices.Contains(strings.Split(m.superOptions, ","), "cpu") {
				continue
			}
			own = v1Path
		} else if m.fsType != "cgroup2" {
			continue
		}
		if rest, ok := below(m.root, own); ok {
			groups = append(groups, cpuGroup{
				leaf: fsPath(path.Join(m.point, rest)),
				top:  fsPath(m.point),
				v2:   m.fsType == "cgroup2",
			})
		}
	}
	return groups
}

// ownCgroups reads /proc/self/cgroup: the path of this process in the hierarchy of version 1's cpu
// controller and in that of version 2, "" where there is none.
func ownCgroups(text string) (v1, v2 string) {
	for line := range strings.Lines(text) {
		// hierarchy-id:controllers:path; version 2 is "0::path".
		fields := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		switch {
		case len(fields) < 3:
		case fields[0] == "0" && fields[1] == "":
			v2 = fields[2]
		case slices.Contains(strings.Split(fields[1], ","), "cpu"):
			v1 = fields[2]
		}
	}
	return v1, v2
}

// mount is one line of /proc/self/mountinfo.
type mount struct {
	root         string // the directory of the mounted file system that is seen at point
	point        string
	fsType       string
	superOptions string
}

func parseMount(line string) (mount, bool) {
	// id parent major:minor root point options [optional fields] - type source super-options
	before, after, ok := strings.Cut(line, " - ")
	left, right := strings.Fields(before), strings.Fields(after)
	if !ok || len(left) < 6 || len(right) < 3 {
		return mount{}, false
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	return mount{
		root:         unescape.Replace(left[3]),
		point:        unescape.Replace(left[4]),
		fsType:       right[0],
		superOptions: right[2],
	}, true
}

// below returns where the cgroup own lies under the directory root of its hierarchy; false if it does not.
// In a cgroup namespace paths start with "/.." for what lies above the namespace: such a root is an
// ancestor of ours, but the way down from it is hidden, so only the root itself is looked at.
func below(root, own string) (string, bool) {
	switch {
	case own == "" || strings.HasPrefix(own, "/.."):
		return "", false
	case root == "/":
		return own, true
	case strings.HasPrefix(root, "/.."):
		return "", true
	case own == root || strings.HasPrefix(own, root+"/"):
		return strings.TrimPrefix(own, root), true
	}
	return "", false
}

// quota reads the CPU limit of one cgroup directory, in whole CPUs, rounded up; false if it has none.
func quota(root fs.FS, dir string, v2 bool) (int, bool) {
	var fields []string
	if v2 {
		// "max 100000" or "150000 100000": microseconds of CPU time in each period of microseconds.
		fields = strings.Fields(readString(root, path.Join(dir, "cpu.max")))
	} else {
		fields = []string{
			strings.TrimSpace(readString(root, path.Join(dir, "cpu.cfs_quota_us"))), // -1: no limit
			strings.TrimSpace(readString(root, path.Join(dir, "cpu.cfs_period_us"))),
		}
	}
	if len(fields) != 2 {
		return 0, false
	}
	used, err := strconv.Atoi(fields[0])
	if err != nil || used <= 0 {
		return 0, false
	}
	period, err := strconv.Atoi(fields[1])
	if err != nil || period <= 0 {
		return 0, false
	}
	return (used-1)/period + 1, true
}

// readString reads a small file whose absence means the same as its emptiness.
func readString(fsys fs.FS, name string) string {
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		return ""
	}
	return string(data)
}

// fsPath turns an absolute path into one that an fs.FS of the root takes.
func fsPath(abs string) string {
	if p := strings.TrimPrefix(path.Clean(abs), "/"); p != "" {
		return p
	}
	return "."
}
