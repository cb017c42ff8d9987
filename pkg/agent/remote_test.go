package agent

import (
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// What a node tells of its failure comes back, as far as it is told, on another one.
func TestFailureTravels(t *testing.T) {
	now := time.Unix(1000, 0)
	f := failure(3, 990, procs.Exit{Signal: syscall.SIGSEGV})
	f.GlobalRank = 11
	told := f.forOthers(now)
	want := rdzv.Failure{
		Host: "node1", GlobalRank: 11, LocalRank: 3, PID: 1003, Signal: syscall.SIGSEGV, Grade: evidence.GradeCrash, Age: 10 * time.Second,
		Kind: "killed", Summary: "killed by signal 11 (SIGSEGV)",
		Text: "Signal 11 (SIGSEGV) received by PID 1003",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	later := now.Add(time.Hour) // by a clock that has nothing to do with the first
	back := rootCause(&told, nil, later)
	if !back.same(f) || !back.Time.Equal(later.Add(-10*time.Second)) || back.Exit.ShellCode() != 139 || back.Text != told.Text {
		t.Errorf("came back as %+v", back)
	}
	if f.Time = now.Add(time.Minute); f.forOthers(now).Age != 0 { // an error file may tell any time
		t.Error("a failure in the future")
	}
	f.Exit = procs.Exit{Code: 127, StartErr: syscall.ENOENT}
	if told := f.forOthers(now); !told.Final || told.ExitCode != 127 {
		t.Errorf("told %+v of a program that is not there", told)
	}
	if rootCause(nil, map[int]Failure{11: f}, now) != nil {
		t.Error("a root cause that nobody told")
	}
}
