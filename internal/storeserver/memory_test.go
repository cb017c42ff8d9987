package storeserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDivideMemory(t *testing.T) {
	for all, want := range map[int64]memoryShares{
		1 << 20:  {workers: 786433, agents: 4 << 20, runs: 16},
		64 << 20: {workers: 50331649, agents: 13421772, runs: 102},
		2 << 30:  {workers: 1610612737, agents: 429496729, runs: 3276},
	} {
		got := divideMemory(all)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(memoryShares{})); diff != "" {
			t.Errorf("%d bytes (-want +got):\n%s", all, diff)
		}
	}
}
