package slurmlab

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// batch writes a batch script and returns its path.
func batch(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "batch.sh")
	if err := os.WriteFile(path, []byte("#!/bin/bash\n"+body+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLab has all checks in one test, because a cluster takes a while to start.
func TestLab(t *testing.T) {
	var variable string
	t.Run("lab", func(t *testing.T) {
		l := New(t)
		variable = "SLURM_CONF=" + l.path("slurm.conf")
		before := l.Listening(t)
		if len(before) > 0 {
			t.Errorf("somebody listens at %v", before)
		}

		j := l.Submit(
			t,
			[]string{"WHO=me"},
			"--nodes=3",
			batch(t, `srun sh -c 'echo $WHO $SLURM_NODEID $SLURMD_NODENAME' | sort; exit 3`),
		)
		want := Status{State: "FAILED", ExitCode: "3:0"}
		if diff := cmp.Diff(want, j.Wait(t, startBound)); diff != "" {
			t.Errorf("the job's end (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff("me 0 n1\nme 1 n2\nme 2 n3\n", j.Output()); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		if out, err := l.Command(t.Context(), "getent", "ahosts", "n2").CombinedOutput(); err == nil {
			t.Errorf("the name of a node resolves: %s", out)
		}

		// The processes of a node, its slurmd included, end with the node. All others stay.
		j = l.Submit(
			t,
			nil,
			"--nodes=3",
			"--no-kill",
			batch(t, `srun --no-kill sh -c 'touch $SLURMD_NODENAME; exec sleep 1000'`),
		)
		testenv.Await(t, "three tasks", startBound, func() bool {
			tasks, _ := filepath.Glob(filepath.Join(j.Dir, "n?"))
			return len(tasks) == Nodes
		})
		others := len(l.on("n1")) + len(l.on("n2"))
		l.KillNode(t, "n3")
		if left := l.on("n3"); len(left) > 0 {
			t.Errorf("on the dead node: %v", left)
		}
		if now := len(l.on("n1")) + len(l.on("n2")); now != others || now < 2*len([]string{"slurmd", "slurmstepd", "sleep"}) {
			t.Errorf("the other nodes had %d processes and have %d", others, now)
		}
		if got := j.Status(t); got.State != "RUNNING" {
			t.Errorf("the job is %+v", got)
		}
		l.Run(t, "scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=killed") // a cancel would wait for the node
		j.Cancel(t)
		if got := j.Wait(t, startBound); got.State != "CANCELLED" {
			t.Errorf("the job is %+v", got)
		}
	})
	if variable == "" {
		t.Skip("there was no lab")
	}
	testenv.NothingLeft(t, variable)
}

// TestKilled checks that the kernel cleans up after a test that was killed.
func TestKilled(t *testing.T) {
	const hold = "ELASTICRUN_TEST_HOLD_LAB"
	if os.Getenv(hold) != "" {
		fmt.Println("\nheld: " + New(t).path("slurm.conf"))
		_, _ = bufio.NewReader(os.Stdin).ReadByte() // wait until the parent test kills this process
		return
	}
	testenv.Root(t)
	if err := tools(); err != nil {
		testenv.Missing(t, "needs Slurm: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), hold+"=1", "TMPDIR="+t.TempDir())
	cmd.WaitDelay = time.Second
	_, out := testenv.StartWithPipes(t, cmd)
	variable := ""
	for in := bufio.NewScanner(out); variable == "" && in.Scan(); {
		if path, ok := strings.CutPrefix(in.Text(), "held: "); ok {
			variable = "SLURM_CONF=" + path
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if variable == "" {
		t.Fatal("the other process has made no lab")
	}
	testenv.NothingLeft(t, variable)
}
