package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// asUser returns a command of an ordinary user who has nothing else running. A shell runs script, in which "$@" starts
// an elasticrun.
func asUser(t *testing.T, script string, args ...string) *exec.Cmd {
	t.Helper()
	testenv.Root(t) // to be another user
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // the test's own, and the user must get in
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copyProgram(t, testenv.Binary(t), filepath.Join(dir, "elasticrun"), 0o755)
	cmd := exec.CommandContext(t.Context(), "sh",
		append([]string{"-c", script, "sh", filepath.Join(dir, "elasticrun")}, args...)...)
	user := uint32(1<<20 + os.Getpid())
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "OMP_NUM_THREADS=1"}
	return cmd
}

// roomAdvice is the end of the output of a launch of 4 workers for which a limit has no room.
const roomAdvice = `elasticrun (?:needs \d+ more, plus 3 for each worker|and its workers \(4 on this node\) need \d+ more): ` +
	`raise the limit to at least (\d+)(?: (plus 3 for each worker))?\nelasticrun: exit_code=72 reason=preflight\n`

// advisedLimit is what a line with roomAdvice advises for so many workers.
func advisedLimit(t *testing.T, out string, workers int) int {
	t.Helper()
	m := regexp.MustCompile(roomAdvice + "$").FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no advice in\n%s", out)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	if m[2] != "" {
		n += 3 * workers
	}
	return n
}

// If the limit on the user's processes and threads is too small for a launch, one line says so. No limit leads to a
// trace of the Go runtime, and the limit that the line advises is enough. With room for fewer than 6 threads the Go
// runtime fails before elasticrun can check the limit; the shell needs room for one.
func TestUserLimit(t *testing.T) {
	const workers = 4
	line := regexp.MustCompile(`^elasticrun: the user may have (\d+) processes and threads \(ulimit -u\), of which (\d+) are in use; ` + roomAdvice + `$`)
	launch := func(t *testing.T, limit, others int) (code int, out string) {
		t.Helper()
		script := fmt.Sprintf(`for i in $(seq %d); do sleep 60 & all="$all $!"; done; prlimit --nproc=%d "$@"; code=$?; [ -z "$all" ] || kill $all; wait; exit $code`, others, limit)
		cmd := asUser(t, script, "--no-python", "--nproc-per-node="+strconv.Itoa(workers), "sleep", "0.1")
		text, _ := cmd.CombinedOutput()
		return testenv.ExitCode(cmd.ProcessState), string(text)
	}
	limits := map[int][]int{0: {8, 14, 20, 28, 48}, 30: {10, 24}} // by the number of other processes
	if testenv.Whole(t) {
		whole := []int{8, 10, 14, 16, 20, 24, 28, 32, 36, 40, 48}
		limits = map[int][]int{0: whole, 30: whole}
	}
	for others, limits := range limits {
		advised := 0
		for _, limit := range limits {
			code, out := launch(t, limit+others, others)
			if code == 0 {
				continue
			}
			m := line.FindStringSubmatch(out)
			if code != 72 || m == nil || m[1] != strconv.Itoa(limit+others) {
				t.Errorf("limit %d beside %d: exit code %d, want 72 and %v:\n%s", limit+others, others, code, line, out)
				continue
			}
			if used, _ := strconv.Atoi(m[2]); used < others+2 {
				t.Errorf("limit %d beside %d: %d in use:\n%s", limit+others, others, used, out)
			}
			advised = advisedLimit(t, out, workers)
			if code, out := launch(t, advised, others); code != 0 {
				t.Errorf("limit %d as advised, beside %d: exit code %d:\n%s", advised, others, code, out)
			}
		}
		if advised == 0 {
			t.Errorf("beside %d: no limit was too small", others)
		}
	}
}

// The kernel does not limit root, and neither does elasticrun.
func TestUserLimitOfRoot(t *testing.T) {
	testenv.Root(t)
	cmd := exec.CommandContext(t.Context(), "prlimit", "--nproc=4", testenv.Binary(t), "--no-python", "true")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// If the user's limit leaves no room for a worker after a restart, the worker fails with a line that names the limit.
func TestUserLimitOfWorkers(t *testing.T) {
	cmd := asUser(t, `exec prlimit --nproc=1000 "$@"`, "--no-python", "--max-restarts=1", "--min-uptime=0", "sh", "-c",
		`prlimit --pid=$PPID --nproc=1; exit 3`)
	out, _ := cmd.CombinedOutput()
	want := "resource temporarily unavailable: the user may have 1 processes and threads (ulimit -u)"
	if code := testenv.ExitCode(cmd.ProcessState); code != 126 || !strings.Contains(string(out), want) {
		t.Errorf("exit code %d, want 126 and %q:\n%s", code, want, out)
	}
}
