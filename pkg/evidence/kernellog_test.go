package evidence

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/failure"
)

func TestParseKmsg(t *testing.T) {
	boot := at(1000)
	records := []string{
		"4,90,999000000,-;Memory cgroup out of memory: Killed process 41 (late clock) total-vm:1kB, anon-rss:2kB, file-rss:3kB, shmem-rss:0kB",
		"3,100,2000000000,-;Memory cgroup out of memory: Killed process 42 (python3 (x)) total-vm:90000kB, anon-rss:63000kB, file-rss:488kB, shmem-rss:0kB, UID:0 pgtables:220kB oom_score_adj:0\n SUBSYSTEM=x\n",
		"3,101,2000500000,c;Out of memory: Killed process 43 (a) total-vm:90000kB, anon-rss:1024kB",
		"3,102,2001000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=44, name=python, GPU has fallen off the bus.",
		"3,103,2002000000,-;NVRM: Xid (PCI:0000:3b:00): 119, pid='<unknown>', Timeout",
		"6,104,2003000000,-;eth0: link up", "rubbish", ";", "a,b,c;Out of memory: Killed process 1 (x) anon-rss:1kB",
	}
	got := parseKmsg(records, boot, at(2999), at(3001).Add(time.Second/2))
	want := KernelLog{
		Readable: true,
		Kills: []OOMKill{
			{Time: at(2999), PID: 41, Name: "late clock", RSS: 5 << 10, Cgroup: true},
			{Time: at(3000), PID: 42, Name: "python3 (x)", RSS: 63488 << 10, Cgroup: true},
			{Time: at(3000).Add(500 * time.Millisecond), PID: 43, Name: "a", RSS: 1 << 20},
		},
		Xids: []XidEvent{
			{at(3001), 44, "NVRM: Xid (PCI:0000:3b:00): 79, pid=44, name=python, GPU has fallen off the bus."},
			{at(3001).Add(time.Second / 2), 0, "NVRM: Xid (PCI:0000:3b:00): 119, pid='<unknown>', Timeout"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if of := got.XidsOf(44, true); len(of) != 2 || of[0].Kind != failure.Xid {
		t.Errorf("of the process: %v", of)
	}
	if of := got.XidsOf(45, true); len(of) != 1 {
		t.Errorf("of another: %v", of)
	}
	if of := got.XidsOf(45, false); len(of) != 0 {
		t.Errorf("of another, by name: %v", of)
	}
}

// A log that cannot be read counts as missing.
func TestKernelLogIsNotThere(t *testing.T) {
	if got := openKernelTail(filepath.Join(t.TempDir(), "kmsg"), machine(nil)).read(machine(nil),
		time.Now()); got.Readable {
		t.Error("readable, and not there")
	}
	file := filepath.Join(t.TempDir(), "kmsg")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tail := openKernelTail(file, machine(nil))
	defer tail.close()
	if got := tail.read(machine(nil), time.Now()); got.Readable {
		t.Error("readable without a clock")
	}
	m := NewMachine() // as this user may
	m.Mark()
	_ = m.Log()
	m.Close()
	if m.Log().Readable {
		t.Error("readable after its close")
	}
}

// Records before the mark are skipped. Records after it are read once.
func TestKernelTail(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kmsg")
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err = f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	root := machine(map[string]string{"proc/uptime": "1000.5 2000.0\n"})
	kill := func(pid string) string {
		return "3,1,1000000000,-;Out of memory: Killed process " + pid + " (python3) total-vm:9kB, anon-rss:1024kB"
	}
	write(kill("1"))
	tail := openKernelTail(file, root)
	defer tail.close()
	for _, pid := range []int{2, 3} {
		write(kill(strconv.Itoa(pid)))
		now := time.Now()
		got := tail.read(root, now)
		if !got.Readable || len(got.Kills) != 1 || got.Kills[0].PID != pid {
			t.Errorf("%+v, want the kill of %d", got, pid)
		}
		if at := got.Kills[0].Time; now.Sub(at) > time.Second {
			t.Errorf("the kill was at %v", at)
		}
	}
	write(kill("4"))
	tail.mark()
	if got := tail.read(root, time.Now()); !got.Readable || len(got.Kills) != 0 {
		t.Errorf("%+v after a mark", got)
	}
}

func TestCoreGlob(t *testing.T) {
	for _, tt := range []struct {
		pattern    string
		usesPID    bool
		glob, text string
	}{
		{"core", false, "core", `core dumped by the pattern "core", but not found`},
		{"core", true, "core.42", `core dumped by the pattern "core", but not found`},
		{"/c/%e.%p.%s.%t%%%", true, "/c/*.42.11.*%", `core dumped by the pattern "/c/%e.%p.%s.%t%%%", but not found`},
		{"/c/[a]*?%h", false, `/c/\[a]\*\?*`, `core dumped by the pattern "/c/[a]*?%h", but not found`},
		{"|/usr/lib/systemd/systemd-coredump %P %u", false, "", "core: coredumpctl info 42"},
		{"|/usr/share/apport/apport -p%p", false, "", "core piped to /usr/share/apport/apport"},
	} {
		glob, text := coreGlob(tt.pattern, tt.usesPID, 42, syscall.SIGSEGV)
		if glob != tt.glob || text != tt.text {
			t.Errorf("%s: %q, %q", tt.pattern, glob, text)
		}
	}
}

func TestCore(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"core.python3.42", "core.a.41"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root := machine(map[string]string{
		"proc/sys/kernel/core_pattern":  "core.%e.%p\n",
		"proc/sys/kernel/core_uses_pid": "0\n",
	})
	long := time.Now().Add(-time.Hour)
	if got, want := findCore(root, 42, 11, dir, long), "core: "+filepath.Join(dir, "core.python3.42"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for name, got := range map[string]string{
		"of another process": findCore(root, 43, 11, dir, long),
		"of before":          findCore(root, 42, 11, dir, time.Now().Add(time.Hour)),
	} {
		if got != `core dumped by the pattern "core.%e.%p", but not found` {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestScanFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stderr.log")
	filler := make([]byte, fileEnd)
	for i := range filler {
		if filler[i] = 'x'; i%80 == 79 {
			filler[i] = '\n'
		}
	}
	text := trace("KeyError: 0") + string(filler) + trace("KeyError: 1") + string(filler[:fileLast]) + trace("KeyError: 2")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, at(50), at(50)); err != nil {
		t.Fatal(err)
	}
	want := []failure.Finding{
		{Kind: failure.Exception, Time: time.Time{}, Text: "KeyError: 1"},
		{Kind: failure.Exception, Time: at(50), Text: "KeyError: 2"},
	}
	if diff := cmp.Diff(want, ScanFile(file)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := ScanFile(file + "x"); got != nil {
		t.Errorf("no file: %v", got)
	}
}

// The whole log is read, whatever pids it names.
func TestWholeKernelLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kmsg")
	if err := os.WriteFile(file,
		[]byte("3,1,1000000,-;NVRM: Xid (PCI:0000:01:00): 79, pid=7, GPU has fallen off the bus."), 0o600); err != nil {
		t.Fatal(err)
	}
	root := machine(map[string]string{"proc/uptime": "1000.5 2000.0\n"})
	now := time.Unix(5000, 0)
	got := wholeLog(file, root, now)
	if !got.Readable || len(got.Xids) != 1 || now.Sub(got.Xids[0].Time) != 999500*time.Millisecond {
		t.Errorf("%+v", got)
	}
	if wholeLog(file+"x", root, now).Readable {
		t.Error("readable, and not there")
	}
}
