package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/rpc"
)

// outcome is the result of a launcher with its workers.
type outcome struct {
	stdout, stderr string
	code           int
	files          []os.DirEntry // left in TMPDIR
}

// launch runs a program whose workers are this test binary, and checks that no process is left.
func launch(t *testing.T, vars []string, program string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*testTimeout)
	defer cancel()
	mark, folder := testenv.Mark(), t.TempDir()
	cmd := exec.CommandContext(ctx, program, append(args, os.Args[0])...)
	cmd.Env = append(os.Environ(), roleVariable+"="+roleWorker, quickEnd, "TMPDIR="+folder, "OMP_NUM_THREADS=1", mark)
	cmd.Env = append(cmd.Env, vars...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	testenv.NothingLeft(t, mark)
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	return outcome{out.String(), errs.String(), cmd.ProcessState.ExitCode(), files}
}

// elasticrun launches n workers on one node and checks that no file is left.
func elasticrun(t *testing.T, n int, vars []string, flags ...string) outcome {
	t.Helper()
	o := launch(t, vars, testenv.Binary(t), append([]string{"--nproc-per-node", strconv.Itoa(n), "--no-python"}, flags...)...)
	if len(o.files) > 0 {
		t.Errorf("files left: %v", o.files)
	}
	return o
}

// checkPeersCalled checks that all n workers of an attempt called the others and exited with code 0.
func checkPeersCalled(t *testing.T, n, attempt int, outcomes ...outcome) {
	t.Helper()
	var want, got []string
	for rank := range n {
		called := 0
		if rank == 0 {
			called = n
		}
		after := (rank + 1) % n
		want = append(want, fmt.Sprintf("worker%d of %d: next worker%d/%d, back worker%[3]d/%[4]d worker%[1]d/%[4]d, called %[5]d",
			rank, n, after, attempt, called))
	}
	for _, o := range outcomes {
		if o.code != 0 {
			t.Errorf("exit code %d\n%s", o.code, o.stderr)
		}
		got = append(got, strings.Split(strings.TrimSpace(o.stdout), "\n")...)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("workers (-want +got):\n%s", diff)
	}
}

// elasticrun starts the workers of static groups.
func TestProcesses(t *testing.T) {
	for _, n := range []int{2, 8, 64} {
		if n == 64 && !testenv.Whole(t) {
			continue
		}
		t.Run(strconv.Itoa(n), func(t *testing.T) { checkPeersCalled(t, n, 0, elasticrun(t, n, nil)) })
	}
}

// A worker is killed during calls. The group of the new round has only new processes.
func TestProcessesRestart(t *testing.T) {
	o := elasticrun(t, 3, []string{killVariable + "=1"}, "--max-restarts", "1")
	checkPeersCalled(t, 3, 1, o)
	if !strings.Contains(o.stderr, "SIGKILL") {
		t.Errorf("no worker was killed:\n%s", o.stderr)
	}
	if strings.Contains(o.stderr, "is not "+rpc.ErrConnection.Error()) {
		t.Errorf("a worker got another error:\n%s", o.stderr)
	}
}

// Two launchers form a rendezvous on one port.
func TestProcessesOfTwoNodes(t *testing.T) {
	testenv.Binary(t)
	endpoint := fmt.Sprint("127.0.0.1:", testenv.FreePort(t))
	outcomes := make([]outcome, 2)
	var nodes sync.WaitGroup
	for i := range outcomes {
		nodes.Go(func() {
			outcomes[i] = elasticrun(t, 2, nil, "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "rpc")
		})
	}
	nodes.Wait()
	checkPeersCalled(t, 4, 0, outcomes...)
}

// torchrun starts the same worker. Its agent hosts the store and keeps it over a restart.
func TestProcessesUnderTorchrun(t *testing.T) {
	for _, version := range []string{"2.14", "2.6", testenv.Official} {
		if version != "2.14" && !testenv.Whole(t) {
			continue
		}
		t.Run("torch "+version, func(t *testing.T) {
			args := []string{"-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", "2", "--max-restarts", "1"}
			checkPeersCalled(t, 2, 1, launch(t, []string{killVariable + "=1"}, testenv.Torch(t, version), args...))
		})
	}
}

// Invalid input ends the worker with one line, which the launcher reports.
func TestProcessesBadInput(t *testing.T) {
	authority := testenv.NewAuthority(t, "authority")
	ca := authority.File
	cert, key := authority.Issue(t, "worker")
	for _, tc := range []struct {
		name string
		vars []string
		want []string // parts of one line
	}{
		{
			name: "two workers of one name", vars: []string{nameVariable + "=same"},
			want: []string{`init RPC as same: worker name "same" is taken by the worker with id `},
		},
		{
			name: "a malformed count", vars: []string{"ELASTICRUN_GPU_COUNT=x"},
			want: []string{`init RPC as worker`, `: ELASTICRUN_GPU_COUNT="x": must be a whole number of GPUs`},
		},
		{
			name: "a certificate without its key", vars: []string{"ELASTICRUN_RPC_CERT=" + cert, "ELASTICRUN_RPC_CA=" + ca},
			want: []string{`init RPC as worker`, `: ELASTICRUN_RPC_CERT is set, but ELASTICRUN_RPC_KEY is not`},
		},
		{
			name: "an address of another host", vars: []string{"ELASTICRUN_RPC_ADDR=192.0.2.1"},
			want: []string{`init RPC as worker`, `listen for calls at 192.0.2.1:0: `, `set ELASTICRUN_RPC_ADDR or the option Address to an address of this host`},
		},
		{
			name: "one has no certificate", vars: []string{
				"ELASTICRUN_RPC_CERT=" + cert, "ELASTICRUN_RPC_KEY=" + key, "ELASTICRUN_RPC_CA=" + ca, plainVariable + "=1",
			},
			want: []string{`worker "worker0" has TLS, but worker "worker1" has not: give certificates to all workers of a group, or to none`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := elasticrun(t, 2, tc.vars)
			if o.code != 1 || o.stdout != "" {
				t.Errorf("exit code %d, stdout %q", o.code, o.stdout)
			}
			_, report, _ := strings.Cut(o.stderr, "Root Cause")
			for _, text := range []string{o.stderr, report} {
				if !slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool {
					return !slices.ContainsFunc(tc.want, func(part string) bool { return !strings.Contains(line, part) })
				}) {
					t.Errorf("no line has %q in\n%s", tc.want, text)
				}
			}
		})
	}
}

// Workers find their certificates in the environment.
func TestProcessesWithTLS(t *testing.T) {
	authority := testenv.NewAuthority(t, "authority")
	ca := authority.File
	cert, key := authority.Issue(t, "worker")
	checkPeersCalled(t, 2, 0, elasticrun(t, 2, []string{"ELASTICRUN_RPC_CERT=" + cert, "ELASTICRUN_RPC_KEY=" + key, "ELASTICRUN_RPC_CA=" + ca}))
}

// A member of an old group cannot call the new process at the address of a member that it knew, even if that process
// has the same name and rank.
func TestOldGroupReachesNoNewMember(t *testing.T) {
	mark := testenv.Mark()
	t.Cleanup(func() { testenv.NothingLeft(t, mark) })
	address := fmt.Sprint("ELASTICRUN_RPC_ADDR=127.0.0.1:", testenv.FreePort(t))
	group := func() (*rpc.Group, *memberProcess) {
		store := startStore(t)
		other := newMemberProcess(t, exec.CommandContext(t.Context(), os.Args[0]), mark, //nolint:gosec // this program
			memberConfig{Name: "worker1", Store: store, Rank: 1, WorldSize: 2}, address)
		g := initAll(t, []rpc.Config{{Name: "worker0", Store: dialStore(t, store), WorldSize: 2}})[0]
		other.receive()
		if there, err := where.Call(t.Context(), g, "worker1", struct{}{}); err != nil || there != "worker1/" {
			t.Fatalf("%q, %v", there, err)
		}
		return g, other
	}
	survivor, dead := group()
	dead.kill()
	fresh, alive := group()
	if there, err := where.Call(t.Context(), survivor, "worker1", struct{}{}); !errors.Is(err, rpc.ErrReplaced) {
		t.Errorf("%q, %v; want %v", there, err, rpc.ErrReplaced)
	}
	alive.send("leave")
	shutdownAll(t, []*rpc.Group{fresh})
	alive.receive()
	alive.end()
}
