package proctree

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	if !ProcIsOurs() {
		t.Error("the /proc of this test is not its own")
	}
}

// waitid and /proc report the same children.
func TestProbeChildPIDs(t *testing.T) {
	dead, alive := exec.Command("sh", "-c", "exit 3"), exec.Command("sleep", "1000")
	for _, cmd := range []*exec.Cmd{dead, alive} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	if _, err := AwaitExit(dead.Process.Pid); err != nil {
		t.Fatal(err)
	}
	all := func(int) bool { return true }
	want, err := childPIDs(all)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Sort(want); len(want) < 2 {
		t.Fatalf("children %v", want)
	}
	if diff := cmp.Diff(want, probeRange(want[0], want[len(want)-1], all)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(probeChildPIDs(all)) == 0 {
		t.Error("no child is found")
	}
}
