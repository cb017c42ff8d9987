package agent

import (
	"encoding/json"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// A failure that a node sends arrives on another node, except for the fields that are not sent.
func TestFailureTravels(t *testing.T) {
	now := time.Unix(1000, 0)
	f := failureOf(3, 990, procs.Exit{Signal: syscall.SIGSEGV}, workerEvidence{})
	f.GlobalRank = 11
	data, err := json.Marshal(outgoing(f, now))
	if err != nil {
		t.Fatal(err)
	}
	var sent rdzv.Failure
	if err := json.Unmarshal(data, &sent); err != nil {
		t.Fatal(err)
	}
	want := rdzv.Failure{
		Failure: failure.Failure{
			Host: "node1", GlobalRank: 11, LocalRank: 3, PID: 1003, Signal: syscall.SIGSEGV,
			Kind: failure.Killed, Summary: "killed by signal 11 (SIGSEGV)", Text: "Signal 11 (SIGSEGV) received by PID 1003",
		},
		Grade: failure.GradeCrash, Age: 10 * time.Second,
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	later := now.Add(time.Hour) // by a clock that has nothing to do with the first
	back := rootCause(&sent, nil, later)
	if !back.Same(f) || !back.Time.Equal(later.Add(-10*time.Second)) || back.ShellCode() != 139 || back.Text != sent.Text {
		t.Errorf("came back as %+v", back)
	}
	if f.Time = now.Add(time.Minute); outgoing(f, now).Age != 0 { // an error file may tell any time
		t.Error("a failure in the future")
	}
	missing := failureOf(3, 990, procs.Exit{Code: 127, StartErr: syscall.ENOENT}, workerEvidence{})
	if sent := outgoing(missing, now); !sent.Final || sent.ExitCode != 127 {
		t.Errorf("sent %+v of a program that is not there", sent)
	}
	const wire = `{"host":"node1","round":0,"rank":11,"local_rank":3,"pid":1003,"signal":11,"kind":"killed",` +
		`"summary":"killed by signal 11 (SIGSEGV)","text":"Signal 11 (SIGSEGV) received by PID 1003","grade":0,"age":10000000000}`
	if string(data) != wire {
		t.Errorf("sent %s\nwant %s", data, wire)
	}
	hang := sent
	hang.Kind = failure.Hang
	for kind, cause := range map[failure.Kind]*rdzv.Failure{failure.Killed: &sent, failure.Hang: &hang} {
		// The node of that worker knows how it ended when it was stopped.
		got := rootCause(cause, map[int]failure.Failure{11: f}, now)
		if got.Kind != kind || got.Remote != (kind == failure.Hang) {
			t.Errorf("%s: the root cause is %+v", kind, got)
		}
	}
	if rootCause(nil, map[int]failure.Failure{11: f}, now) != nil {
		t.Error("a root cause that nobody sent")
	}
}
