package doctor

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/seconds"
)

func TestOutput(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, script string
		last, err    string
	}{
		{name: "the last line", script: `echo one; echo two >&2; echo; echo`, last: "two"},
		{name: "nothing", script: "true"},
		{name: "failure", script: "echo why; exit 3", last: "why", err: "exit status 3 (why)"},
		{name: "a signal", script: "kill -9 $$", err: "signal: killed"},
		{name: "a lot", script: "yes | head -c 100000; echo; echo end", last: "end"},
		{name: "colors", script: `printf '\033[31mred'`, last: "?[31mred"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			last, err := output(t.Context(), time.Minute, os.Environ(), "sh", "-c", tc.script)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if last != tc.last || got != tc.err {
				t.Errorf("%q, %q; want %q, %q", last, got, tc.last, tc.err)
			}
		})
	}
}

// A command that does not end has written what it could. On a busy machine that may take longer than the first bound.
func TestOutputWithoutEnd(t *testing.T) {
	t.Parallel()
	for bound := 50 * time.Millisecond; ; bound *= 4 {
		last, err := output(t.Context(), bound, os.Environ(), "sh", "-c", "echo begun; sleep 100")
		if last == "" && err != nil && bound < time.Minute {
			continue
		}
		want := "no end within " + seconds.Format(bound) + " (begun)"
		if last != "begun" || err == nil || err.Error() != want {
			t.Errorf("%q, %v; want %q", last, err, want)
		}
		return
	}
}

func TestReadMachine(t *testing.T) {
	t.Parallel()
	root := fstest.MapFS{}
	for name, text := range map[string]string{
		"proc/self/cgroup":                     "0::/job/step0\n",
		"proc/self/mountinfo":                  "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"proc/meminfo":                         "MemTotal:       1000 kB\nMemFree:        10 kB\nMemAvailable:    500 kB\n",
		"proc/sys/kernel/core_pattern":         "|/bin/collect %p\n",
		"proc/sys/kernel/pid_max":              "4194304\n",
		"sys/fs/cgroup/job/step0/pids.max":     "max\n",
		"sys/fs/cgroup/job/step0/pids.current": "12\n",
		"sys/fs/cgroup/job/step0/memory.max":   "800000\n",
		"sys/fs/cgroup/memory.max":             "1\n",
		"sys/class/infiniband/mlx5_0":          "",
	} {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	if diff := cmp.Diff(Memory{Total: 1024000, Available: 512000, CgroupMax: 800000}, readMemory(root)); diff != "" {
		t.Errorf("memory (-want +got):\n%s", diff)
	}
	l := readLimits(root)
	if l.NoFile == 0 {
		t.Error("the limit of open files is not known")
	}
	l.NoFile, l.MemLock, l.Core = 0, 0, 0
	want := Limits{CorePattern: "|/bin/collect %p", PIDMax: 4194304, CgroupPIDs: unlimited, CgroupPIDsUsed: 12, RDMA: true}
	if diff := cmp.Diff(want, l); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
}

func TestReadDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if d := readDisk("logs", filepath.Join(dir, "not", "there", "yet")); d.Err != nil || d.Total == 0 || d.Free > d.Total {
		t.Errorf("a folder that is not there yet: %+v", d)
	}
	if d := readDisk(shmName, filepath.Join(dir, "shm")); d.Err == nil {
		t.Errorf("shared memory that is not there: %+v", d)
	}
}
