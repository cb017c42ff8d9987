// Package cgroup finds the control groups of the calling process, so that their limits can be read: CPU time, memory,
// processes. It reads files only and changes no cgroup. Its functions keep no state and may be called concurrently.
//
// The formats are those of cgroups(7), proc_pid_cgroup(5) and proc_pid_mountinfo(5).
package cgroup

import (
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
)

// Group is the cgroup of the calling process in one mounted hierarchy.
type Group struct {
	// Dir is the cgroup's folder and Mount the mount point of its hierarchy. Both are absolute and clean, and Dir is
	// Mount or below it.
	Dir, Mount string
	// V2 says that the hierarchy is cgroup version 2.
	V2 bool
	// Options are the hierarchy's mount options, such as memory_localevents.
	Options []string
}

// Find returns the cgroups whose limits for a controller, such as "cpu", "memory" or "pids", apply to the calling
// process. root is the root of the file system. The result is empty where no hierarchy is visible.
//
// A machine in hybrid mode has hierarchies of both versions. Those of version 1 come first: the kernel attaches a
// controller to one hierarchy only, and version 2 does not have a controller that version 1 has mounted.
func Find(root fs.FS, controller string) []Group {
	v1Path, v2Path := ownPaths(read(root, "proc/self/cgroup"), controller)
	var v1, v2 []Group
	for line := range strings.Lines(read(root, "proc/self/mountinfo")) {
		m, ok := parseMount(line)
		if !ok {
			continue
		}
		switch m.fsType {
		case "cgroup":
			if dir, ok := m.locate(v1Path); ok && slices.Contains(m.options, controller) {
				v1 = append(v1, Group{Dir: dir, Mount: m.point, Options: m.options})
			}
		case "cgroup2":
			if dir, ok := m.locate(v2Path); ok {
				v2 = append(v2, Group{Dir: dir, Mount: m.point, V2: true, Options: m.options})
			}
		}
	}
	return append(v1, v2...)
}

// Dirs yields the folder of the cgroup and the folders of those above it up to the mount point, innermost first. The
// limits of all of them apply.
func (g Group) Dirs() iter.Seq[string] {
	return func(yield func(string) bool) {
		for dir := g.Dir; yield(dir) && dir != g.Mount && dir != "/"; {
			dir = path.Dir(dir)
		}
	}
}

// Read returns the text of the file name in a cgroup's folder, without white space around it. The text is empty if the
// file does not exist or cannot be read.
func Read(root fs.FS, dir, name string) string {
	return strings.TrimSpace(read(root, strings.TrimPrefix(path.Join(dir, name), "/")))
}

func read(root fs.FS, name string) string {
	data, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return string(data)
}

// ownPaths reads the text of /proc/self/cgroup. It returns the path of the process in the version 1 hierarchy of the
// controller and its path in version 2. A path is empty if there is no such hierarchy.
func ownPaths(text, controller string) (v1, v2 string) {
	for line := range strings.Lines(text) {
		// hierarchy-id:controllers:path; version 2 is "0::path".
		fields := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		switch {
		case len(fields) < 3:
		case fields[0] == "0" && fields[1] == "":
			v2 = fields[2]
		case slices.Contains(strings.Split(fields[1], ","), controller):
			v1 = fields[2]
		}
	}
	return v1, v2
}

// mount is one line of /proc/self/mountinfo.
type mount struct {
	root    string // the folder of the mounted file system that is visible at point
	point   string
	fsType  string
	options []string // of the file system, not of the mount
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
		root:    unescape.Replace(left[3]),
		point:   path.Clean(unescape.Replace(left[4])),
		fsType:  right[0],
		options: strings.Split(right[2], ","),
	}, true
}

// locate returns the folder in which the mount shows the cgroup with the path own; false if the mount does not show it.
//
// In a cgroup namespace a path that starts with "/.." is above the namespace. Such a root is an ancestor of the own
// cgroup, but the way down from it is hidden, so the result is the root itself.
func (m mount) locate(own string) (dir string, ok bool) {
	switch {
	case own == "" || strings.HasPrefix(own, "/.."):
		return "", false
	case m.root == "/":
		return path.Join(m.point, own), true
	case strings.HasPrefix(m.root, "/.."):
		return m.point, true
	case own == m.root || strings.HasPrefix(own, m.root+"/"):
		return path.Join(m.point, strings.TrimPrefix(own, m.root)), true
	}
	return "", false
}
