package agent

import (
	"bufio"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// A selection of streams by global rank applies to each round's own ranks.
func TestLogsByGlobalRank(t *testing.T) {
	tee, err := workerlog.ParseStreamSpec("g5:3")
	if err != nil {
		t.Fatal(err)
	}
	shown, err := workerlog.ParseRanks("g3-5")
	if err != nil {
		t.Fatal(err)
	}
	spec := WorkerSpec{
		MaxRestarts: 1, Output: workerlog.OutputRules{Tee: tee, Shown: shown},
		PrefixTemplate: "$node_rank/$rank ",
	}
	b := newHarness(t, spec, nil, allSucceed)
	b.rdzv.nodes, b.rdzv.rank = 3, 2 // global ranks 4 and 5
	b.launcher.script[0] = func(g *fakeGroup) {
		b.rdzv.rank = 1 // and next 2 and 3
		g.exit(procs.Exit{LocalRank: 0, Code: 1})
	}
	b.run(t)
	type out struct {
		File    bool
		Console bool
		Prefix  workerlog.Prefix
	}
	var got [][]out
	for _, specs := range b.launcher.specs {
		var round []out
		for _, s := range specs {
			round = append(round, out{s.Stdout.File != "", s.Stdout.Console, s.Stdout.Prefix})
		}
		got = append(got, round)
	}
	want := [][]out{
		{{Console: true}, {File: true, Console: true, Prefix: workerlog.Prefix{"2/5 "}}},
		{{}, {Console: true}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The attempt with a log has a timeline that describes it. The other attempt has none.
	file, err := os.Open(filepath.Join(b.folders.dir.Path(), "attempt_0", workerlog.TimelineName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Scan()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	head, _ := workerlog.ParseTimelineHead(lines.Text())
	if want := (workerlog.TimelineHead{
		RunID: "run-1", Host: host, NodeRank: 2, Base: 4, Workers: 2,
		Role: "default",
	}); head != want {
		t.Errorf("head %+v, want %+v", head, want)
	}
	if _, err := os.Stat(filepath.Join(b.folders.dir.Path(), "attempt_1", workerlog.TimelineName)); err == nil {
		t.Error("an attempt without logs has a timeline")
	}
}
