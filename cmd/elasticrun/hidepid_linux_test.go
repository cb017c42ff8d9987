package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// copyProgram copies an executable file, for everybody to run.
func copyProgram(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	src, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = src.Close() }()
	syscall.ForkLock.RLock() // a process forked now would inherit the file: "text file busy"
	defer syscall.ForkLock.RUnlock()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(dst, src); err != nil {
		t.Fatal(err)
	}
	if err := dst.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(to, mode); err != nil {
		t.Fatal(err)
	}
}

// On shared machines /proc often hides the processes of other users (hidepid). A job of an ordinary user still ends as
// elsewhere, because the kernel lists the job's own processes.
func TestHiddenProcesses(t *testing.T) {
	t.Parallel()
	testenv.Root(t) // to mount, and to make programs that run with another user's rights
	dir := t.TempDir()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Flags&unix.ST_NOSUID != 0 {
		testenv.Missing(t, "needs a temporary folder that is not mounted nosuid (%v)", err)
	}
	paths := make(map[string]string)
	for _, name := range []string{"sleep", "setpriv"} {
		path, err := exec.LookPath(name)
		if err != nil {
			testenv.Missing(t, "needs %s: %v", name, err)
		}
		paths[name] = path
	}
	for _, d := range []string{dir, filepath.Dir(dir)} { // the test's own, and everybody must get in
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copyProgram(t, testBinary(t), filepath.Join(dir, "elasticrun"), 0o755)
	copyProgram(t, paths["sleep"], filepath.Join(dir, "sleep"), os.ModeSetuid|0o755)
	copyProgram(t, paths["setpriv"], filepath.Join(dir, "setpriv"), os.ModeSetuid|0o755)

	const most = 25 * time.Second // less than --shutdown-timeout
	for i, tt := range []struct {
		name, script string
		stderr       []string
		least        time.Duration
	}{
		{
			name: "its own processes", script: `sleep 1000 & setsid sleep 1000 & (setsid sleep 1000 &); exit 3`,
		},
		{
			name: "a program with root's rights", script: `setsid ../sleep 1000 & while [ -e /proc/$! ]; do :; done; exit 3`,
		},
		{
			name: "a process of root", script: `setsid ../setpriv --reuid=0 --regid=0 --clear-groups sh -c 'echo $$$$ >up; exec sleep 1000' & while [ ! -s up ]; do sleep 0.02; done; exit 3`,
			stderr: []string{"processes do not die: pid ", "(hidden by /proc), state ?, which this user may not signal"},
			least:  2 * time.Second,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			mark := testenv.Mark()
			work := filepath.Join(dir, fmt.Sprint("work", i))
			if err := os.Mkdir(work, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(work, 0o777); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = os.RemoveAll(work) }()
			cmd := exec.Command("unshare", "--mount", "sh", "-c",
				`mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid=65534 --regid=65534 --clear-groups ../elasticrun --no-python sh -c "$0"`,
				tt.script)
			cmd.Dir, cmd.Env = work, append(os.Environ(), mark, shortTimeouts, "TMPDIR="+work, "HOME="+work)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			begun := time.Now()
			_ = cmd.Run()
			took := time.Since(begun)
			if code := testenv.ExitCode(cmd.ProcessState); code != 3 || took < tt.least || took > most {
				t.Errorf("exit code %d after %v", code, took)
			}
			for _, text := range tt.stderr {
				if !strings.Contains(stderr.String(), text) {
					t.Errorf("stderr lacks %q", text)
				}
			}
			if tt.stderr == nil && strings.Contains(stderr.String(), "not die") {
				t.Error("something was left")
			}
			t.Logf("took %v:\n%s", took, &stderr)
			if up, err := os.ReadFile(filepath.Join(work, "up")); err == nil { // only root can end it
				pid, err := strconv.Atoi(strings.TrimSpace(string(up)))
				if err != nil {
					t.Fatal(err)
				}
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			testenv.NothingLeft(t, mark)
		})
	}
}
