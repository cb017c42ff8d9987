package zoo

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// inMounts returns the beginning of a command line that runs a command in its own mount namespace, after the shell
// command mount has run there.
func inMounts(t *testing.T, mount string) []string {
	t.Helper()
	unshare := []string{"unshare", "--mount"}
	if os.Getuid() != 0 {
		unshare = []string{"unshare", "--user", "--map-root-user", "--mount"}
	}
	wrap := append(unshare, "sh", "-ec", mount+`; exec "$@"`, "sh")
	if out, err := exec.CommandContext(t.Context(), wrap[0], append(wrap[1:], "true")...).CombinedOutput(); err != nil {
		testenv.Missing(t, "needs root or user namespaces, to mount something: %v: %s", err, out)
	}
	return wrap
}

// TestFullDisk checks that a full disk under the log folder costs log files, not the job: the workers run to their
// end, and the next workers start.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, limit, flag string
		args              []string
		texts             []string
	}{
		{
			"file and console",
			"size=512k",
			"--tee=3",
			[]string{"flood", "2"},
			[]string{"output of a worker is being lost", "no space left on device", "is full"},
		},
		{"file", "size=512k", "--redirects=3", []string{"flood", "2"}, []string{"is full"}},
		// Room for the files of one start and one more folder, or for all folders of another start and no file.
		{
			"restart",
			"nr_inodes=12",
			"--redirects=3",
			[]string{"exits"},
			[]string{"the workers get no log files", "no space left on device"},
		},
		{
			"files of a restart",
			"nr_inodes=14",
			"--redirects=3",
			[]string{"exits"},
			[]string{"the workers get no log files", "no space left on device"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			disk := t.TempDir()
			j := launch{
				wrap:  inMounts(t, "mount -t tmpfs -o "+tt.limit+" none '"+disk+"'"),
				flags: []string{tt.flag, "--log-dir=" + disk, "--max-restarts=1", "--min-uptime=0"},
				args:  tt.args,
			}.run(t)
			j.want(3, "worker_failed rank=1", tt.texts...)
			if tt.flag == "--tee=3" && j.stdout.n < 2<<20 {
				t.Errorf("the console showed %d bytes, want all %d", j.stdout.n, 2<<20)
			}
		})
	}
}

// TestFileLimit checks the same for a limit on the size of files.
func TestFileLimit(t *testing.T) {
	t.Parallel()
	j := launch{
		wrap:  []string{"sh", "-c", `ulimit -f 512; exec "$@"`, "sh"},
		flags: []string{"--tee=3"},
		args:  []string{"flood", "2"},
	}.run(
		t,
	)
	j.want(3, "worker_failed rank=1", "output of a worker is being lost", "file too large")
	if j.stdout.n < 2<<20 {
		t.Errorf("the console showed %d bytes, want all %d", j.stdout.n, 2<<20)
	}
}

// TestTerminalGoes checks that the loss of the terminal ends the job as a hang-up, unless SIGHUP is ignored.
func TestTerminalGoes(t *testing.T) {
	t.Parallel()
	testenv.ResetSignals()
	tests := []struct {
		name    string
		wrap    []string
		ignored bool
		code    int
	}{
		{"hang-up", nil, false, 129},
		{"hang-up ignored", []string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh"}, true, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ptm, tty, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			j := launch{
				wrap:     tt.wrap,
				args:     []string{"gated", "1"},
				terminal: tty,
				flags:    []string{"--nproc-per-node=1"},
			}.start(
				t,
			)
			_ = tty.Close()
			for lines := bufio.NewScanner(ptm); lines.Scan() && !strings.Contains(lines.Text(), "waiting"); {
			}
			_ = ptm.Close()
			if tt.ignored {
				j.awaitReady() // from here on the worker continues
			}
			j.end()
			if j.code() != tt.code {
				t.Errorf("exit code %d, want %d", j.code(), tt.code)
			}
		})
	}
}

// TestHiddenProcesses checks that processes that /proc hides from the user belong to the job.
func TestHiddenProcesses(t *testing.T) {
	t.Parallel()
	testenv.Root(t) // an ordinary user cannot mount /proc this way
	for _, mode := range []string{"hidden_daemon", "daemon", "chain", "groups"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			wrap := inMounts(t, "mount -t proc -o hidepid=2 proc /proc")
			wrap = append(wrap, "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
			j := launch{wrap: wrap, args: []string{mode}, dir: publicDir(t)}.run(t)
			j.want(3, "worker_failed rank=1")
		})
	}
}

// publicDir returns a folder for a job of another user, with the binary and zoo.py.
func publicDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for folder, mode := range map[string]os.FileMode{dir: 0o777, filepath.Dir(dir): 0o755} {
		if err := os.Chmod(folder, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, from := range []string{testenv.Binary(t), zooScript(t, "zoo.py")} {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		syscall.ForkLock.RLock() // a process forked now would inherit the file: "text file busy"
		err = os.WriteFile(filepath.Join(dir, filepath.Base(from)), data, 0o755)
		syscall.ForkLock.RUnlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
