package procs

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

func TestOneNamespace(t *testing.T) {
	for _, tt := range []struct {
		name, status string
		want         bool
	}{
		{"own", "Name:\tx\nNSpid:\t42\nNSpgid:\t42\n", true},
		{"of a namespace above", "Name:\tx\nNSpid:\t4242\t42\n", false},
		{"the same number in both", "Name:\tx\nNSpid:\t42\t42\n", false},
		{"a kernel that does not say", "Name:\tx\n", true},
	} {
		if got := oneNamespace([]byte(tt.status)); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	if !procIsOurs() {
		t.Error("the /proc of this test is not its own")
	}
}

// The kernel tells the same children as /proc does.
func TestProbeChildPIDs(t *testing.T) {
	g := startGroup(t, shell(t, 0, "exit 3"), shell(t, 1, "exec sleep 1000"))
	<-g.Exits()
	all := func(int) bool { return true }
	want, err := childPIDs(all)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, probeRange(1, mostPIDs, all)); diff != "" || len(want) < 2 {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(probeChildPIDs(all)) == 0 {
		t.Error("no child is found")
	}
	stopGroup(t, g, Ladder{})
}

// A guard that cannot see the workers of an agent that missed its deadline kills the agent, and so them.
func TestDeadlineInForeignProc(t *testing.T) {
	testenv.Root(t) // to make a pid namespace without a /proc of its own
	mark := testenv.Mark()
	cmd := exec.Command("unshare", "--fork", "--pid", "--kill-child", os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"=guarded", mark, "GORACE=atexit_sleep_ms=10")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for _, line := range []string{"start (setsid sh -c 'sleep 1000 & sleep 1000' &); sleep 1000", "deadline 50ms"} {
		fmt.Fprintln(in, line)
		if !lines.Scan() || lines.Text() != "ok" {
			t.Fatalf("%s: %q, %v\n%s", line, lines.Text(), lines.Err(), &stderr)
		}
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 137 || !strings.Contains(stderr.String(), "silent for 50ms") {
		t.Errorf("exit code %d, stderr:\n%s", code, &stderr)
	}
	testenv.NothingLeft(t, mark)
}
