package evidence

import (
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/failure"
)

// machine is a file system with these files.
func machine(files map[string]string) fstest.MapFS {
	fs := fstest.MapFS{}
	for name, text := range files {
		fs[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fs
}

func TestReadMemory(t *testing.T) {
	const v1 = "40 30 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	const v2 = "41 30 0:31 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  Memory
	}{
		{"version 1", map[string]string{
			"proc/self/cgroup": "4:memory:/job/a\n0::/x\n", "proc/self/mountinfo": v1 + v2,
			"sys/fs/cgroup/memory/job/a/memory.oom_control":    "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
			"sys/fs/cgroup/memory/job/a/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes":   "67108864\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":       "9223372036854771712\n",
		}, Memory{Path: "/sys/fs/cgroup/memory/job/a", Kills: 3, Whole: true, Limit: 64 << 20, Owner: "/sys/fs/cgroup/memory/job"}},
		{"version 1, cgroups below", map[string]string{
			"proc/self/cgroup": "4:memory:/job\n", "proc/self/mountinfo": v1,
			"sys/fs/cgroup/memory/job/memory.oom_control":        "oom_kill 3\n",
			"sys/fs/cgroup/memory/job/a/memory.oom_control":      "oom_kill 2\n",
			"sys/fs/cgroup/memory/job/a/b/memory.oom_control":    "oom_kill 1\n",
			"sys/fs/cgroup/memory/job/a/b/memory.limit_in_bytes": "4096\n",
			"sys/fs/cgroup/memory/job/quiet/memory.oom_control":  "oom_kill 0\n",
			"sys/fs/cgroup/memory/other/memory.oom_control":      "oom_kill 9\n",
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes":     "9223372036854771712\n",
			"sys/fs/cgroup/memory/job/a/memory.limit_in_bytes":   "9223372036854771712\n",
		}, Memory{Path: "/sys/fs/cgroup/memory/job", Kills: 3, Below: map[string]groupKills{
			"/sys/fs/cgroup/memory/job/a": {Kills: 2}, "/sys/fs/cgroup/memory/job/a/b": {Kills: 1, Limit: 4096},
		}}},
		{"version 2 counts those below, too", map[string]string{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/a/memory.events": "oom_kill 2\n", "sys/fs/cgroup/a/b/memory.events": "oom_kill 2\n",
		}, Memory{Path: "/sys/fs/cgroup/a", Kills: 2, Whole: true}},
		{"version 2 that counts a cgroup's own alone", map[string]string{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": strings.Replace(v2, "cgroup2 rw",
				"cgroup2 rw,memory_localevents", 1),
			"sys/fs/cgroup/a/memory.events": "oom_kill 1\n", "sys/fs/cgroup/a/b/memory.events": "oom_kill 2\n",
			"sys/fs/cgroup/a/b/memory.max": "4096\n",
		}, Memory{Path: "/sys/fs/cgroup/a", Kills: 1, Below: map[string]groupKills{"/sys/fs/cgroup/a/b": {
			Kills: 2,
			Limit: 4096,
		}}}},
		{"version 2", map[string]string{
			"proc/self/cgroup": "0::/job.slice/a\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/job.slice/a/memory.events": "low 0\nhigh 0\nmax 7\noom 2\noom_kill 2\noom_group_kill 0\n",
			"sys/fs/cgroup/job.slice/a/memory.max":    "1048576\n",
			"sys/fs/cgroup/job.slice/memory.max":      "max\n",
		}, Memory{Path: "/sys/fs/cgroup/job.slice/a", Kills: 2, Whole: true, Limit: 1 << 20, Owner: "/sys/fs/cgroup/job.slice/a"}},
		{"version 2, a container's mount", map[string]string{
			"proc/self/cgroup": "0::/docker/abc\n", "proc/self/mountinfo": strings.Replace(v2, " / ", " /docker/abc ", 1),
			"sys/fs/cgroup/memory.events": "oom_kill 0\n",
		}, Memory{Path: "/sys/fs/cgroup", Whole: true}},
		{
			"version 2 without the controller",
			map[string]string{"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": v2},
			Memory{},
		},
		{"the machine's count", map[string]string{"proc/vmstat": "nr_free_pages 1\noom_kill 4\n"}, Memory{Machine: new(int64(4))}},
		{"nothing", nil, Memory{}},
		{"rubbish", map[string]string{"proc/self/cgroup": "x\n::\n", "proc/self/mountinfo": "\n - \n1 2 - 3\n"}, Memory{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, ReadMemory(machine(tt.files))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestOOM(t *testing.T) {
	before := Memory{Path: "/cg", Kills: 1, Limit: 64 << 20, Owner: "/cg"}
	after := before
	after.Kills = 2
	below := before
	below.Below = map[string]groupKills{"/cg/worker": {Kills: 1, Limit: 1 << 20}}
	mine := OOMKill{PID: 42, Name: "python3", RSS: 62 << 20, Cgroup: true}
	other := mine
	other.PID = 43
	global := mine
	global.Cgroup = false
	for _, tt := range []struct {
		name          string
		before, after Memory
		kills         []OOMKill
		readable      bool
		want          string
	}{
		{
			"the log has it", before, after,
			[]OOMKill{other, mine},
			true,
			"killed by the OOM killer: memory limit 64 MiB of /cg; 62 MiB in use by pid 42 (python3)",
		},
		{
			"the log alone",
			Memory{},
			Memory{},
			[]OOMKill{mine},
			true,
			"killed by the OOM killer: 62 MiB in use by pid 42 (python3)",
		},
		{
			"the machine",
			Memory{},
			Memory{},
			[]OOMKill{global},
			true,
			"killed by the OOM killer: the machine is out of memory; 62 MiB in use by pid 42 (python3)",
		},
		{
			"the counter alone", before, after, nil, false,
			"probably killed by the OOM killer, which killed 1 process in cgroup /cg meanwhile; memory limit 64 MiB of /cg",
		},
		{
			"the counter of a cgroup below", before, below, nil, false,
			"probably killed by the OOM killer, which killed 1 process in cgroup /cg/worker meanwhile; memory limit 1.0 MiB of /cg/worker",
		},
		{
			"the log, and the counter of a cgroup below", before, below,
			[]OOMKill{mine},
			true,
			"killed by the OOM killer: memory limit 1.0 MiB of /cg/worker; 62 MiB in use by pid 42 (python3)",
		},
		{"a cgroup below has gone", below, before, nil, false, ""},
		{"another process was taken", before, after, []OOMKill{other}, true, ""},
		{"nobody was", before, before, nil, true, ""},
		{"the pid is another machine's", before, before, []OOMKill{mine}, true, ""},
		{"nothing is known", Memory{}, Memory{}, nil, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := KernelReport{tt.before, tt.after, KernelLog{Readable: tt.readable, Kills: tt.kills}}
			var want *failure.Finding
			if tt.want != "" {
				want = new(finding(failure.OOMKilled, at(7), tt.want))
			}
			if diff := cmp.Diff(want, r.OOM(Case{Signal: syscall.SIGKILL, At: at(7)}, 42, nil)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAboutOOM(t *testing.T) {
	group := func(kills int64, whole bool) Memory { return Memory{Path: "/cg", Kills: kills, Whole: whole} }
	machine := func(m Memory, kills int64) Memory {
		m.Machine = &kills
		return m
	}
	for _, tt := range []struct {
		name          string
		before, after Memory
		readable      bool
		want          string
	}{
		{name: "nothing is known"},
		{name: "nobody on the machine", before: machine(Memory{}, 3), after: machine(Memory{}, 3), want: NotOOM},
		{
			name: "somebody on the machine", before: machine(Memory{}, 3), after: machine(Memory{}, 5),
			want: ", while the kernel's OOM killer killed 2 processes on this machine",
		},
		{
			name: "somebody else on the machine, as the log says", readable: true,
			before: machine(Memory{}, 3), after: machine(Memory{}, 5),
		},
		{
			name: "somebody in another cgroup", before: machine(group(1, true), 3), after: machine(group(1, true), 4),
			want: NotOOM,
		},
		{name: "somebody in the cgroup", before: machine(group(1, true), 3), after: machine(group(2, true), 4)},
		{name: "nobody in the cgroup", before: group(1, true), after: group(1, true), want: NotOOM},
		{name: "perhaps somebody in a cgroup below that has gone", before: group(1, false), after: group(1, false)},
		{name: "the count began in the meantime", after: machine(group(1, true), 3)},
	} {
		r := KernelReport{Before: tt.before, After: tt.after, Log: KernelLog{Readable: tt.readable}}
		if got := r.AboutOOM(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestOOMOfChild(t *testing.T) {
	before, after := Memory{Path: "/cg", Kills: 1}, Memory{Path: "/cg", Kills: 2}
	loader := finding(failure.Exception, at(99), "RuntimeError: DataLoader worker (pid 42) is killed by signal: Killed.")
	for _, tt := range []struct {
		name          string
		c             Case
		before, after Memory
		kills         []OOMKill
		want          bool
	}{
		{"a loader's exception", Case{Code: 1, Shown: []failure.Finding{loader}}, before, after, nil, true},
		{"in the error file", Case{Code: 1, ErrorFile: &loader}, before, after, nil, true},
		{"a shell", Case{Code: 137}, before, after, []OOMKill{{PID: 42}}, true},
		{"it reports no kill", Case{Code: 1}, before, after, nil, false},
		{"the OOM killer killed nothing", Case{Code: 137}, before, before, nil, false},
		{"the OOM killer killed another worker", Case{Code: 137}, before, after, []OOMKill{{PID: 7}}, false},
		{"nothing is known", Case{Code: 137}, Memory{}, Memory{}, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.c.At = at(100)
			r := KernelReport{tt.before, tt.after, KernelLog{Kills: tt.kills}}
			f := r.OOM(tt.c, 41, map[int]int{0: 7, 1: 41})
			if (f != nil) != tt.want || tt.want && (f.Kind != failure.OOMKilled || !f.Time.Equal(at(100)) ||
				!strings.Contains(f.Text, "probably killed")) {
				t.Errorf("%+v", f)
			}
		})
	}
}
