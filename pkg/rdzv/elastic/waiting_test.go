package elastic

import (
	"runtime"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

func TestNumNodesWaiting(t *testing.T) {
	j := job(1, 2)
	j.LastCall, j.Grow = 0, rounds.GrowNextRestart
	host := startJob(t, j, 1, nil)[0]
	if n := host.NumNodesWaiting(); n != 0 {
		t.Errorf("%d nodes wait for a job without newcomers", n)
	}
	guest, _ := newProxiedHandler(t, j, host, "guest")
	entered := enter(t, guest, nil)
	for deadline := time.Now().Add(time.Minute); host.NumNodesWaiting() != 1; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("nobody waits")
		}
	}
	if err := host.SetClosed(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	await(t, "the end", entered)
}
