package agent

import (
	"encoding/json"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
)

func decode(t *testing.T, data []byte) (out map[string]any) {
	t.Helper()
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return out
}

func TestErrorFileData(t *testing.T) {
	with := func(raw string, e procs.Exit) failure.Failure {
		var evidence workerEvidence
		if raw != "" {
			parsed, err := parseErrorFile([]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			evidence.errorFile = parsed
		}
		return failureOf(3, 1700000000, e, evidence)
	}
	silent := failureOf(3, 1700000000, procs.Exit{Code: 7},
		workerEvidence{tail: []string{"Traceback", "ValueError: <boom>"}})
	broken := failureOf(3, 1700000000, procs.Exit{Code: 1}, workerEvidence{errorFileProblem: "parse error file: no"})
	tests := []struct {
		name string
		f    failure.Failure
		want string
	}{
		{
			"the code is added, and all else stays",
			with(
				`{"message": {"message": "m <&>", "more": [1.0], "extraInfo": {"py_callstack": "c", "timestamp": "17"}}, "x": {"y": "\udcff"}}`,
				procs.Exit{Code: 3},
			),
			`{"message":{"errorCode":3,"extraInfo":{"py_callstack": "c", "timestamp": "17"},"message":"m <&>","more":[1.0]},"x":{"y":"\udcff"}}`,
		},
		{
			"of a signal, in place of an older one", with(`{"message":{"message":"m","errorCode":1}}`,
				procs.Exit{Signal: syscall.SIGKILL}),
			`{"message":{"errorCode":-9,"message":"m"}}`,
		},
		{
			"a message that is a text stays as it is", with(`{"message":"m","timestamp":1}`, procs.Exit{Code: 3}),
			`{"message":"m","timestamp":1}`,
		},
		{
			"no error file", silent,
			`{"message":{"message":"exited with code 7","extraInfo":{"py_callstack":"last lines of stderr:\n  Traceback\n  ValueError: <boom>",
				"timestamp":"1700000000","host":"node1","rank":3,"local_rank":3},"errorCode":7}}`,
		},
		{
			"one that cannot be used", broken,
			`{"message":{"message":"exited with code 1","extraInfo":{"py_callstack":"parse error file: no",
				"timestamp":"1700000000","host":"node1","rank":3,"local_rank":3},"errorCode":1}}`,
		},
		{
			"another node's", *rootCause(remote(), nil, time.Unix(1700000000, 0)),
			`{"message":{"message":"killed by signal 11 (SIGSEGV)","extraInfo":{"py_callstack":"Signal 11",
				"timestamp":"1700000000","host":"node7","rank":60,"local_rank":4},"errorCode":-11}}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ErrorFileData(tt.f)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decode(t, []byte(tt.want)), decode(t, got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if _, err := parseErrorFile(got); err != nil {
				t.Errorf("our own reader: %v", err)
			}
		})
	}
}

func TestLauncherErrorData(t *testing.T) {
	got, err := LauncherErrorData("RendezvousError", errors.New("no store").Error(), 75, time.Unix(17, 0))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"message":{"message":"RendezvousError: no store","extraInfo":{"py_callstack":"no store","timestamp":"17"},"errorCode":75}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
