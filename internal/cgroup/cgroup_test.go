package cgroup

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const (
	v1Mount = "32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	v2Mount = "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
)

func TestFind(t *testing.T) {
	v1 := Group{Mount: "/sys/fs/cgroup/memory", Options: []string{"rw", "memory"}}
	v2 := Group{Mount: "/sys/fs/cgroup", V2: true, Options: []string{"rw", "nsdelegate"}}
	in := func(g Group, dir string) Group { g.Dir = dir; return g }
	for _, tt := range []struct {
		name, groups, mounts string
		want                 []Group
	}{
		{name: "no files"},
		{name: "rubbish", groups: "x\n::\n", mounts: "\n - \n1 2 - 3\n"},
		{name: "version 2", groups: "0::/job/a\n", mounts: v2Mount, want: []Group{in(v2, "/sys/fs/cgroup/job/a")}},
		{name: "version 1", groups: "4:cpu,memory:/job\n", mounts: v1Mount, want: []Group{in(v1, "/sys/fs/cgroup/memory/job")}},
		{
			name: "hybrid", groups: "4:memory:/job\n0::/x\n", mounts: v2Mount + v1Mount,
			want: []Group{in(v1, "/sys/fs/cgroup/memory/job"), in(v2, "/sys/fs/cgroup/x")},
		},
		{name: "another controller", groups: "4:cpu:/job\n", mounts: v1Mount},
		{name: "not mounted", groups: "0::/job\n", mounts: v1Mount},
		{name: "a container's mount", groups: "0::/docker/abc/w\n", mounts: strings.Replace(v2Mount, " / ", " /docker/abc ", 1), want: []Group{in(v2, "/sys/fs/cgroup/w")}},
		{name: "a mount of a cgroup with a longer name", groups: "0::/docker/abcd\n", mounts: strings.Replace(v2Mount, " / ", " /docker/abc ", 1)},
		{name: "a mount from above the namespace", groups: "0::/\n", mounts: strings.Replace(v2Mount, " / ", " /../.. ", 1), want: []Group{in(v2, "/sys/fs/cgroup")}},
		{name: "a process outside the namespace", groups: "0::/../other\n", mounts: v2Mount},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := fstest.MapFS{
				"proc/self/cgroup":    &fstest.MapFile{Data: []byte(tt.groups)},
				"proc/self/mountinfo": &fstest.MapFile{Data: []byte(tt.mounts)},
			}
			if diff := cmp.Diff(tt.want, Find(root, "memory")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDirs(t *testing.T) {
	for _, tt := range []struct {
		group Group
		want  []string
	}{
		{Group{Dir: "/cg/a/b", Mount: "/cg"}, []string{"/cg/a/b", "/cg/a", "/cg"}},
		{Group{Dir: "/cg", Mount: "/cg"}, []string{"/cg"}},
		{Group{Dir: "/a", Mount: "/"}, []string{"/a", "/"}},
	} {
		if diff := cmp.Diff(tt.want, slices.Collect(tt.group.Dirs())); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.group, diff)
		}
	}
}

func TestRead(t *testing.T) {
	root := fstest.MapFS{"cg/a/pids.max": &fstest.MapFile{Data: []byte("max\n")}}
	if got := Read(root, "/cg/a", "pids.max"); got != "max" {
		t.Errorf("got %q", got)
	}
	if got := Read(root, "/cg", "pids.max"); got != "" {
		t.Errorf("a missing file: got %q", got)
	}
}
