package limits

import (
	"bytes"
	"os"
	"strconv"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// threads is how many threads this process has.
func threads(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := bytes.Cut(status, []byte("Threads:"))
	n, err := strconv.Atoi(string(bytes.Fields(after)[0]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestReserveThreads(t *testing.T) {
	want := threads(t) + 10
	ReserveThreads(want)
	if got := threads(t); got < want {
		t.Errorf("%d threads, want %d", got, want)
	}
	if own := proctree.OwnThreads(); own < want {
		t.Errorf("OwnThreads: %d, want %d", own, want)
	}
}

func TestTightestPIDLimit(t *testing.T) {
	const (
		v1Groups = "9:memory:/a\n8:pids:/a/b\n0::/x\n"
		v1Mounts = "30 25 0:25 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n36 30 0:31 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n37 30 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		v2Groups = "0::/user/job\n"
		v2Mounts = "36 25 0:31 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
		inside   = "36 25 0:31 /user /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
	)
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for _, tt := range []struct {
		name, groups, mounts string
		files                map[string]string
		want                 pidLimit
		found                bool
	}{
		{name: "no cgroups"},
		{name: "version 2 without a limit", groups: v2Groups, mounts: v2Mounts, files: map[string]string{
			"sys/fs/cgroup/user/job/pids.max": "max\n", "sys/fs/cgroup/user/job/pids.current": "5\n",
		}},
		{name: "version 2, the limit is above", groups: v2Groups, mounts: v2Mounts, files: map[string]string{
			"sys/fs/cgroup/user/job/pids.max": "100\n", "sys/fs/cgroup/user/job/pids.current": "5\n",
			"sys/fs/cgroup/user/pids.max": "110\n", "sys/fs/cgroup/user/pids.current": "100\n",
		}, want: pidLimit{"/sys/fs/cgroup/user", 110, 100}, found: true},
		{name: "a part of the hierarchy is mounted", groups: v2Groups, mounts: inside, files: map[string]string{
			"sys/fs/cgroup/job/pids.max": "64\n", "sys/fs/cgroup/job/pids.current": "60\n",
		}, want: pidLimit{"/sys/fs/cgroup/job", 64, 60}, found: true},
		{name: "version 1 before version 2", groups: v1Groups, mounts: v1Mounts, files: map[string]string{
			"sys/fs/cgroup/pids/a/b/pids.max": "64\n", "sys/fs/cgroup/pids/a/b/pids.current": "64\n",
			"sys/fs/cgroup/unified/x/pids.max": "3\n", "sys/fs/cgroup/unified/x/pids.current": "3\n",
		}, want: pidLimit{"/sys/fs/cgroup/pids/a/b", 64, 64}, found: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := fstest.MapFS{"proc/self/cgroup": file(tt.groups), "proc/self/mountinfo": file(tt.mounts)}
			for name, text := range tt.files {
				root[name] = file(text)
			}
			got, found := tightestPIDLimit(root)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(pidLimit{})); diff != "" || found != tt.found {
				t.Errorf("found %v (-want +got):\n%s", found, diff)
			}
		})
	}
}

func TestForkLimit(t *testing.T) {
	for _, tt := range []struct {
		name    string
		l       pidLimit
		limited bool
		user    uint64
		want    string
	}{
		{"cgroup", pidLimit{"/c", 64, 60}, true, 4096, "cgroup /c allows 64 processes and threads (pids.max), of which 60 are in use"},
		{"user", pidLimit{"/c", 5000, 60}, true, 4096, "the user may have 4096 processes and threads (ulimit -u)"},
		{"user alone", pidLimit{}, false, 4096, "the user may have 4096 processes and threads (ulimit -u)"},
		{"machine", pidLimit{}, false, unix.RLIM_INFINITY, "the machine has no room for another process (kernel.threads-max, kernel.pid_max)"},
	} {
		if got := forkLimit(tt.l, tt.limited, tt.user); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
