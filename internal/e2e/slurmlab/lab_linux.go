package slurmlab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// Lab is a running cluster.
type Lab struct {
	dir  string // folder of all files of the daemons
	init int    // process id of the first process of the namespaces
}

// startBound is far longer than the daemons need to connect, which takes a second.
const startBound = 30 * time.Second

// New starts a cluster and returns when all nodes are idle. The cluster ends with the test.
func New(t testing.TB) *Lab {
	t.Helper()
	testenv.Root(t)
	if err := tools(); err != nil {
		testenv.Missing(t, "needs Slurm: %v", err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	l := &Lab{dir: t.TempDir()}
	if err := os.WriteFile(l.path("slurm.conf"), []byte(config(l.dir, host)), 0o600); err != nil {
		t.Fatal(err)
	}
	l.start(t)
	testenv.Await(t, "idle nodes", startBound, func() bool {
		out, err := l.Command(t.Context(), "sinfo", "--noheader", "--states=idle", "--format=%D").Output()
		return err == nil && strings.TrimSpace(string(out)) == strconv.Itoa(Nodes)
	})
	return l
}

// first is the shell script of the first process of the namespaces; $1 is the lab's folder. The resolver of the C
// library resolves nothing, not even an address, on a machine whose only address is 127.0.0.1, so the script adds
// one. The script needs bash, which unlike other shells reaps orphans while it reads. Each node has a /dev/shm of its
// own, as on a cluster. If they shared one, an agent would find the store of another node there, and would take it for
// an earlier store of its own node.
const first = `
mount --make-rslave /
mount -t proc proc /proc
ip link set lo up
cd "$1"
for node in 1 2 3; do
	ip addr add 10.76.0.$node/32 dev lo
	mkdir spool-n$node
done
mkdir state
head -c 128 /dev/urandom >munge.key
chmod 400 munge.key
export SLURM_CONF=$1/slurm.conf
munged --force --socket="$1/munge.sock" --key-file="$1/munge.key" --pid-file="$1/munged.pid" \
	--log-file="$1/munged.log" --seed-file="$1/munged.seed"
slurmctld
for node in 1 2 3; do
	unshare --mount sh -c 'mount -t tmpfs tmpfs /dev/shm && exec slurmd -N "$1"' sh "n$node"
done
echo started
read -r _ || :`

// start runs the daemons. The cluster ends when the pipe that its first process reads is closed. The kernel closes
// the pipe even if the test is killed.
func (l *Lab) start(t testing.TB) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "/bin/bash", "-euc", first, "bash", l.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET}
	said, err := os.Create(l.path("start.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	cmd.Stderr = said
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		testenv.Missing(t, "needs namespaces for processes, mounts and the network: %v", err)
	}
	l.init = cmd.Process.Pid
	t.Cleanup(func() { l.stop(t, cmd, hold) })
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "started\n" {
		t.Fatalf("cannot start Slurm:\n%s", l.logs())
	}
}

// stop ends the cluster. Wait returns when every process of the namespaces has ended: the kernel reaps the first one
// last.
func (l *Lab) stop(t testing.TB, cmd *exec.Cmd, hold io.Closer) {
	t.Helper()
	if t.Failed() {
		t.Logf("what the daemons said:\n%s", l.logs())
	}
	_ = hold.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the cluster's first process: %v", err)
	}
}

// Command is exec.CommandContext on the cluster's machine, outside any job.
func (l *Lab) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	target := "--target=" + strconv.Itoa(l.init)
	cmd := exec.CommandContext(
		ctx,
		"nsenter",
		append([]string{target, "--mount", "--pid", "--net", "--", program}, args...)...)
	// The test itself can run as a job of another cluster.
	env := slices.DeleteFunc(
		os.Environ(),
		func(v string) bool { return strings.HasPrefix(v, "SLURM") || strings.HasPrefix(v, "SBATCH_") },
	)
	cmd.Env = append(env, "SLURM_CONF="+l.path("slurm.conf"))
	cmd.WaitDelay = time.Second
	return cmd
}

// Run returns the stdout of a command on the cluster. A failure of the command ends the test.
func (l *Lab) Run(t testing.TB, program string, args ...string) string {
	t.Helper()
	cmd := l.Command(t.Context(), program, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", program, strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// Listening returns the TCP ports in state LISTEN, without those of the daemons.
func (l *Lab) Listening(t testing.TB) []int {
	t.Helper()
	var found []int
	for _, name := range []string{"tcp", "tcp6"} {
		table, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(l.init), "net", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range listening(string(table)) {
			if port < controllerPort || port > controllerPort+Nodes {
				found = append(found, port)
			}
		}
	}
	return found
}

func (l *Lab) path(name string) string { return filepath.Join(l.dir, name) }

// logs returns the last lines of all logs.
func (l *Lab) logs() string {
	const tail = 1200
	var all strings.Builder
	paths, _ := filepath.Glob(l.path("*.log"))
	for _, p := range paths {
		text, _ := os.ReadFile(p)
		fmt.Fprintf(&all, "== %s\n%s\n", filepath.Base(p), text[max(0, len(text)-tail):])
	}
	return all.String()
}

// tools returns an error that names the first missing program.
func tools() error {
	return testenv.Programs(map[string]string{
		"slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "sbatch": "slurm-wlm", "munged": "munge",
		"ip": "iproute2", "nsenter": "util-linux",
	})
}
