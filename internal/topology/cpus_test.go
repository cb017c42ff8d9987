package topology

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

const (
	v2Mount     = "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
	v1Mount     = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
	cpusetMount = "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
)

func TestLimitCPUs(t *testing.T) {
	v2 := func(extra map[string]string) map[string]string {
		machine := map[string]string{
			"proc/self/cgroup":    "0::/job/step\n",
			"proc/self/mountinfo": "22 27 0:21 / /proc rw - proc proc rw\n" + v2Mount,
		}
		maps.Copy(machine, extra)
		return machine
	}
	v1 := func(mount, own, dir, quota string) map[string]string {
		return map[string]string{
			"proc/self/cgroup":              "3:cpuset:/\n4:cpu,cpuacct:" + own + "\n0::/\n",
			"proc/self/mountinfo":           cpusetMount + mount,
			dir + "/cpu.cfs_quota_us":       quota + "\n",
			dir + "/cpu.cfs_period_us":      "100000\n",
			"sys/fs/cgroup/cpuset/cpu.max":  "100000 100000\n",
			"sys/fs/cgroup/cpu,cpuacct/pad": "",
		}
	}
	tests := []struct {
		name    string
		machine map[string]string
		want    int // of 16
	}{
		{"no cgroups", map[string]string{}, 16},
		{"v2 without limit", v2(map[string]string{"sys/fs/cgroup/job/step/cpu.max": "max 100000\n"}), 16},
		{"v2 whole CPUs", v2(map[string]string{"sys/fs/cgroup/job/step/cpu.max": "400000 100000\n"}), 4},
		{"v2 rounds up", v2(map[string]string{"sys/fs/cgroup/job/step/cpu.max": "400001 100000\n"}), 5},
		{"v2 half a CPU is one", v2(map[string]string{"sys/fs/cgroup/job/step/cpu.max": "50000 100000\n"}), 1},
		{"v2 quota above the affinity", v2(map[string]string{"sys/fs/cgroup/job/step/cpu.max": "6400000 100000\n"}), 16},
		{"v2 limit of the parent", v2(map[string]string{
			"sys/fs/cgroup/job/step/cpu.max": "max 100000\n",
			"sys/fs/cgroup/job/cpu.max":      "300000 100000\n",
		}), 3},
		{"v2 limit at the mount point", v2(map[string]string{"sys/fs/cgroup/cpu.max": "200000 100000\n"}), 2},
		{"v2 smallest of several", v2(map[string]string{
			"sys/fs/cgroup/job/step/cpu.max": "700000 100000\n",
			"sys/fs/cgroup/job/cpu.max":      "600000 100000\n",
			"sys/fs/cgroup/cpu.max":          "900000 100000\n",
		}), 6},
		{"v2 sibling does not count", v2(map[string]string{"sys/fs/cgroup/other/cpu.max": "100000 100000\n"}), 16},
		{"v2 damaged file", v2(map[string]string{"sys/fs/cgroup/job/step/cpu.max": "100000 0\n"}), 16},
		{"v2 container with cgroup namespace", map[string]string{
			"proc/self/cgroup":      "0::/\n",
			"proc/self/mountinfo":   v2Mount,
			"sys/fs/cgroup/cpu.max": "250000 100000\n",
		}, 3},
		{"v2 mounted from above the namespace", map[string]string{
			"proc/self/cgroup":      "0::/\n",
			"proc/self/mountinfo":   strings.Replace(v2Mount, " / /sys", " /../.. /sys", 1),
			"sys/fs/cgroup/cpu.max": "250000 100000\n",
		}, 3},
		{"v2 mount of another cgroup", map[string]string{
			"proc/self/cgroup":      "0::/mine\n",
			"proc/self/mountinfo":   strings.Replace(v2Mount, " / /sys", " /theirs /sys", 1),
			"sys/fs/cgroup/cpu.max": "250000 100000\n",
		}, 16},
		{"v2 mount point with a blank", map[string]string{
			"proc/self/cgroup":          "0::/a\n",
			"proc/self/mountinfo":       strings.Replace(v2Mount, "/sys/fs/cgroup", `/mnt/c\040g`, 1),
			"mnt/c g/a/cpu.max":         "250000 100000\n",
			"sys/fs/cgroup/a/cpu.max":   "100000 100000\n",
			"sys/fs/cgroup/cpu.max":     "100000 100000\n",
			"sys/fs/cgroup/cpu/cpu.max": "100000 100000\n",
		}, 3},
		{"v1 limit", v1(v1Mount, "/user", "sys/fs/cgroup/cpu,cpuacct/user", "150000"), 2},
		{"v1 limit of the parent", v1(v1Mount, "/user/me", "sys/fs/cgroup/cpu,cpuacct/user", "150000"), 2},
		{"v1 without limit", v1(v1Mount, "/user", "sys/fs/cgroup/cpu,cpuacct/user", "-1"), 16},
		{
			"v1 container without namespace",
			v1(
				strings.Replace(v1Mount, " / /sys", " /docker/abc /sys", 1),
				"/docker/abc",
				"sys/fs/cgroup/cpu,cpuacct",
				"500000",
			), 5,
		},
		{
			"v1 below a container's root",
			v1(
				strings.Replace(v1Mount, " / /sys", " /docker/abc /sys", 1),
				"/docker/abc/x",
				"sys/fs/cgroup/cpu,cpuacct/x",
				"500000",
			), 5,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := limitCPUs(files(tt.machine), 16); got != tt.want {
				t.Errorf("limitCPUs = %d, want %d", got, tt.want)
			}
		})
	}
}

func TestCPUsIsAtMostTheAffinity(t *testing.T) {
	affinity, err := Affinity()
	if err != nil {
		t.Fatal(err)
	}
	if got := CPUs(); got < 1 || got > len(affinity) {
		t.Errorf("CPUs() = %d with an affinity of %v", got, affinity)
	}
}

// TestAffinityIsSeen checks that a process with an affinity of one CPU counts one: the test runs itself under taskset.
func TestAffinityIsSeen(t *testing.T) {
	if os.Getenv("TOPOLOGY_PRINT_CPUS") != "" {
		affinity, err := Affinity()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(os.Stdout, "cpus=%d affinity=%s\n", CPUs(), FormatCPUList(affinity)); err != nil {
			t.Fatal(err)
		}
		return
	}
	taskset, err := exec.LookPath("taskset")
	if runtime.GOOS != "linux" || err != nil {
		testenv.Missing(t, "needs taskset")
	}
	affinity, err := Affinity()
	if err != nil {
		t.Fatal(err)
	}
	last := strconv.Itoa(affinity[len(affinity)-1])
	cmd := exec.CommandContext(t.Context(), taskset, "-c", last, os.Args[0], "-test.run=^TestAffinityIsSeen$")
	cmd.Env = append(os.Environ(), "TOPOLOGY_PRINT_CPUS=1")
	out, err := cmd.CombinedOutput()
	if want := "cpus=1 affinity=" + last + "\n"; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("under taskset -c %s: %v\n%s\nwant %s", last, err, out, want)
	}
}
