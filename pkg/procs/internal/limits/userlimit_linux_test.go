package limits

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The message of a limit says how much room elasticrun needs, and which limit is enough.
func TestNoRoom(t *testing.T) {
	for _, tt := range []struct {
		name string
		l    pidLimit
		need Need
		own  int
		want string
	}{
		{
			"the user's, of a guard",
			pidLimit{max: 60, used: 34},
			Need{Guard: true, CPUs: 2},
			4,
			"the user may have 60 processes and threads (ulimit -u), of which 34 are in use; " +
				"elasticrun needs 24 more, plus 3 for each worker: raise the limit to at least 62 plus 3 for each worker",
		},
		{
			"a cgroup's, of an agent",
			pidLimit{cgroup: "/c", max: 32, used: 26},
			Need{CPUs: 2, Workers: 4},
			14,
			"cgroup /c allows 32 processes and threads (pids.max), of which 26 are in use; " +
				"elasticrun and its workers (4 on this node) need 13 more: raise the limit to at least 43",
		},
	} {
		if got := noRoom(tt.l, tt.need, tt.need.total()-tt.own); got != tt.want {
			t.Errorf("%s:\n got %q\nwant %q", tt.name, got, tt.want)
		}
	}
}

// The advice counts for each worker what the worker adds to the need.
func TestPerWorker(t *testing.T) {
	for workers := 1; workers <= 2*streamThreads; workers++ {
		added := Need{CPUs: 8, Workers: workers}.total() - Need{CPUs: 8}.total()
		if most := perWorker * workers; added > most || workers <= streamThreads && added != most {
			t.Errorf("%d workers add %d, want %d at most", workers, added, most)
		}
	}
}

func TestMayExceed(t *testing.T) {
	const (
		none  = "CapPrm:\t000001ffffffffff\nCapEff:\t0000000000000000\n"
		admin = "CapEff:\t0000000000200000\n"
		res   = "CapEff:\t0000000001000000\n"
		other = "CapEff:\t0000000000000400\n"
		first = "         0          0 4294967295\n"
		mine  = "         0       1000          1\n"
		outer = "         0          0          1\n"
	)
	for _, tt := range []struct {
		name   string
		uid    int
		status string
		uids   string
		mapped bool
		want   bool
	}{
		{"a user", 1000, none, first, true, false},
		{"root without capabilities", 0, none, first, true, true},
		{"CAP_SYS_ADMIN", 1000, admin, first, true, true},
		{"CAP_SYS_RESOURCE", 1000, res, first, true, true},
		{"another capability", 1000, other, first, true, false},
		{"root of a user namespace", 0, admin, mine, true, false},
		{"root of a user namespace that root made", 0, none, outer, true, true},
		{"CAP_SYS_ADMIN in a user namespace that root made", 1, admin, outer, true, false},
		{"a kernel without user namespaces", 1000, none, "", false, false},
		{"root of a kernel without user namespaces", 0, none, "", false, true},
	} {
		if got := mayExceed(tt.uid, []byte(tt.status), []byte(tt.uids), tt.mapped); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestMachineTasks(t *testing.T) {
	for _, tt := range []struct {
		load  string
		n     int
		known bool
	}{
		{"0.20 0.18 0.12 1/80 11206\n", 80, true},
		{"0.00 0.00 0.00 3/70123 4194303\n", 70123, true},
		{"0.00 0.00 0.00 0/0 0\n", 0, false}, // gVisor
		{"0.20 0.18 0.12\n", 0, false},
		{"", 0, false},
	} {
		if n, known := machineTasks(tt.load); n != tt.n || known != tt.known {
			t.Errorf("%q: %d, %v, want %d, %v", tt.load, n, known, tt.n, tt.known)
		}
	}
}

// The threads of a user's processes count. Those of a process that changed its real user do not.
func TestUserTasks(t *testing.T) {
	proc := t.TempDir()
	for name, status := range map[string]string{
		"1":      "Name:\tinit\nUid:\t{UID}\t{UID}\t{UID}\t{UID}\nThreads:\t1\n",
		"20":     "Name:\tUid:\nUid:\t{UID}\t0\t0\t0\nThreads:\t30\n",
		"21":     "Uid:\t4242\t{UID}\t{UID}\t{UID}\nThreads:\t500\n",
		"22":     "Uid:\t{UID}",
		"kernel": "Uid:\t{UID}\t{UID}\t{UID}\t{UID}\nThreads:\t1000\n",
	} {
		writeStatus(t, filepath.Join(proc, name), status)
	}
	if n, err := userTasks(proc, os.Getuid()); n != 31 || err != nil {
		t.Errorf("%d, %v, want 31", n, err)
	}
	if n, err := userTasks(proc, os.Getuid()+1); n != 0 || err != nil {
		t.Errorf("another user: %d, %v, want 0", n, err)
	}
	if _, err := userTasks(filepath.Join(proc, "none"), os.Getuid()); err == nil {
		t.Error("no error where there is no /proc")
	}
}

// writeStatus makes the folder of a process. {UID} in status stands for the user id of this test.
func writeStatus(t *testing.T, dir, status string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	status = strings.ReplaceAll(status, "{UID}", strconv.Itoa(os.Getuid()))
	if err := os.WriteFile(filepath.Join(dir, "status"), []byte(status), 0o644); err != nil {
		t.Fatal(err)
	}
}
