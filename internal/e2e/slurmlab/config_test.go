package slurmlab

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestConfig(t *testing.T) {
	text := config("/lab", "machine")
	for _, want := range []string{
		"SlurmctldHost=machine(10.76.0.1)\n",
		"AuthInfo=socket=/lab/munge.sock\n",
		"NodeName=n3 NodeHostname=machine NodeAddr=10.76.0.3 Port=17003 CPUs=2\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no line %s in\n%s", want, text)
		}
	}
	// Debian's default path holds for every file that the config does not name.
	for line := range strings.Lines(text) {
		if key, value, _ := strings.Cut(line, "="); strings.HasPrefix(value, "/") && !strings.HasPrefix(value, "/lab/") {
			t.Errorf("%s is outside the lab: %s", key, value)
		}
	}
}

func TestFields(t *testing.T) {
	line := "JobId=7 JobName=a b JobState=RUNNING Reason=None Restarts=1 ExitCode=0:9 Comment=x=y Dependency="
	want := map[string]string{
		"JobId": "7", "JobName": "a", "JobState": "RUNNING", "Reason": "None", "Restarts": "1", "ExitCode": "0:9", "Comment": "x=y", "Dependency": "",
	}
	if diff := cmp.Diff(want, fields(line)); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

func TestListening(t *testing.T) {
	table := `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0000000000000000 100 0 0 10 0
   1: 0100007F:1F91 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0000000000000000 100 0 0 10 0
   2: 00000000:4269 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 3 1 0000000000000000 100 0 0 10 0
`
	if diff := cmp.Diff([]int{8080, 17001}, listening(table)); diff != "" {
		t.Errorf("listening (-want +got):\n%s", diff)
	}
}
