package zoo

import (
	"fmt"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// mismatches are the ways in which a rank of testdata/zoo/peers.py breaks its peers, with the reason in the last
// line.
var mismatches = []struct {
	mode, text string
	quick      string // version of torch in make test, on one node; empty if only make soak runs it
	official   bool   // short runs of make soak have the official build too
	nodes      bool   // also runs on two nodes
	plain      bool   // not about torch: short runs have one version of torch
}{
	{
		mode: "leaves", text: "exited with code 0 while its peers were still communicating", nodes: true, official: true,
	},
	{mode: "vanishes", text: "exited with code 0 while its peers were still communicating", nodes: true, plain: true},
	{
		mode:  "denies",
		text:  "exited with code 0 while its peers were still communicating, after ValueError: the loss is not a number",
		nodes: true, plain: true,
	},
	{mode: "source", text: "ConnectionResetError: [Errno 104] Connection reset by peer", nodes: true},
	{mode: "slow_end", text: "ConnectionResetError: [Errno 104] Connection reset by peer", quick: "1.13", official: true},
	{
		mode: "url", text: "ConnectionRefusedError: [Errno 111] Connection refused (which led to urllib.error.URLError",
		plain: true,
	},
	{
		mode:  "chained",
		text:  "ConnectionResetError: [Errno 104] Connection reset by peer (which led to RuntimeError: cannot read the batch)",
		plain: true,
	},
	{
		mode:  "recorded",
		text:  "ConnectionResetError: [Errno 104] Connection reset by peer (which led to RuntimeError: cannot read the batch)",
		nodes: true,
	},
	{mode: "loader", text: `"ValueError: sample 3 is broken"`},
	// The moment at which SIGCHLD arrives decides the rank's words; TestRecorded in pkg/evidence has the forms. They
	// never name a peer.
	{mode: "loader_killed", nodes: true, official: true},
	{mode: "spawned", text: `"ValueError: sample 3 is broken"`},
	{mode: "newline", text: `"RuntimeError: the checkpoint is truncated"`, plain: true},
	{mode: "hangs", text: "was alive and silent when its peers gave up waiting", nodes: true},
	{mode: "paused", text: "was stopped by a signal (state T)", nodes: true},
	{mode: "asserts", text: "killed by signal 6 (SIGABRT): Assertion `loss == loss' failed."},
	{mode: "throws", text: "killed by signal 6 (SIGABRT): what():  the batch is too long", nodes: true},
	{mode: "checks", text: "killed by signal 6 (SIGABRT): Check failed: loss == loss"},
}

// TestPeersOfMismatches checks that the rank that failed first is named with its reason, whatever its victims print
// and in whatever order they end.
func TestPeersOfMismatches(t *testing.T) {
	for _, version := range []string{"1.13", "2.14", testenv.Official} {
		for i, tt := range mismatches {
			if tt.quick != version && (!testenv.Whole(t) || tt.plain && version != shortRun(i) && !testenv.Long(t)) {
				continue
			}
			if version == testenv.Official && !tt.official && testenv.Repeat(t, 0, 100) < 100 {
				continue // only the longest runs have all: it takes seconds of CPU time to load
			}
			t.Run(tt.mode+" "+version, func(t *testing.T) {
				n := startNode(t, version, "peers.py", []string{"--nproc-per-node=3"}, []string{tt.mode})
				n.wantCause(2, tt.text)
			})
		}
	}
}

// shortRun returns the version of torch for the mismatch of that index where a short run of make soak has one version.
func shortRun(i int) string {
	return []string{"1.13", "2.14"}[i%2]
}

// TestPeersOfMismatchesElsewhere checks the same on two nodes, each of which names the same rank. make test has one
// case.
func TestPeersOfMismatchesElsewhere(t *testing.T) {
	t.Setenv("GLOO_SOCKET_IFNAME", "lo")
	endpoint := startStore(t)
	for _, version := range []string{"1.13", "2.14"} {
		for i, tt := range mismatches {
			name := tt.mode + " " + version
			run := testenv.Long(t) || version == shortRun(i)
			if !testenv.Whole(t) {
				run = name == "hangs 1.13"
			}
			if !tt.nodes || !run {
				continue
			}
			t.Run(name, func(t *testing.T) {
				var nodes []*node
				for rank := range 2 {
					args := []string{
						"--nnodes=2", "--nproc-per-node=2", fmt.Sprint("--node-rank=", rank), "--rdzv-id=" + strings.ReplaceAll(name, " ", "-"), "--rdzv-backend=c10d", "--rdzv-endpoint=" + endpoint,
					}
					nodes = append(nodes, startNode(t, version, "peers.py", args, []string{tt.mode}))
				}
				for _, n := range nodes {
					n.wantCause(3, tt.text)
				}
			})
		}
	}
}

// wantCause waits for a job and checks the root cause in the last line of its stderr.
func (n *node) wantCause(rank int, text string) {
	n.t.Helper()
	code := n.end()
	all := strings.TrimSpace(n.stderr.String())
	last := all[strings.LastIndexByte(all, '\n')+1:]
	if code == 0 || n.blamed() != rank || !strings.Contains(last, text) || strings.Contains(last, "note=") {
		n.t.Errorf("exit code %d, the last line is %q, want rank %d and %q\n%s", code, last, rank, text, all)
	}
}
