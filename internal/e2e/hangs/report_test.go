package hangs

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// This file has everything that depends on how elasticrun finds and reports hangs.

const (
	// hangTimeout is the --hang-timeout in seconds.
	hangTimeout = 5
	// innocentSeconds is how long an innocent job shows little or no progress. It is longer than hangTimeout, and shorter
	// than the time that --hang-action=stop waits for its second look, which ends the job.
	innocentSeconds = 8
	// With --hang-timeout=auto elasticrun learns the rhythm of a job for learnSeconds, and after that suspects nothing for
	// a minute. autoSeconds is longer.
	learnSeconds, autoSeconds = 75, 100
	// hangCode is the exit code of a job that was ended because it hangs.
	hangCode = 77
)

// hangFlags returns the flags of a job with a hang. If the kernel does not let a worker end, the test must release the
// worker, so the test ends the job.
func (h hang) hangFlags() []string {
	action := "stop"
	if h.file != noFile {
		action = "report"
	}
	return []string{fmt.Sprint("--hang-timeout=", hangTimeout), "--hang-action=" + action}
}

// checkVerdict waits until elasticrun has found the hang, and has ended the job unless the test has to. It checks that
// each node names the odd rank, and returns what node 0 says.
func (h hang) checkVerdict(t *testing.T, j *job, script string, odd int, release func()) string {
	t.Helper()
	if h.file != noFile {
		testenv.Await(t, "elasticrun to find the hang", bound, func() bool {
			return !slices.ContainsFunc(j.nodes, func(n *node) bool {
				return !strings.Contains(n.output.String(), "hang suspected")
			})
		})
		release()
		j.stop()
	} else if codes := j.codes(); !slices.Equal(codes, []int{hangCode, hangCode}) {
		t.Errorf("exit codes %v, want %d", codes, hangCode)
	}
	summary := ""
	for i, n := range j.nodes {
		r := n.readReport(t)
		if h.file == noFile && r.Reason != "hang" {
			t.Errorf("node %d reports the reason %q, want hang", i, r.Reason)
		}
		if len(r.Hangs) == 0 {
			t.Errorf("node %d reports no hang", i)
			continue
		}
		last := r.Hangs[len(r.Hangs)-1]
		if i == 0 {
			summary = last.Summary
		}
		want := []int{odd}
		if h.everybody {
			want = nil
		}
		victims := h.victims && script == ddp && slices.Contains(last.Ranks, odd)
		if !slices.Equal(last.Ranks, want) && !victims {
			t.Errorf("node %d names the ranks %v, want %v: %s", i, last.Ranks, want, last.Summary)
		}
	}
	return summary
}

// readReport reads the node's report.
func (n *node) readReport(t *testing.T) report.Report {
	t.Helper()
	var r report.Report
	data, err := os.ReadFile(n.report)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		t.Fatalf("read the report: %v", err)
	}
	return r
}
