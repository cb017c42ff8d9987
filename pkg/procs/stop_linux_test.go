package procs

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// A worker that was sent SIGKILL just before the stop began is a cause, although it is no zombie yet.
func TestKilledBeforeTheStop(t *testing.T) {
	for range 10 {
		t.Run("", func(t *testing.T) {
			s := shell(t, 0, "echo ready; exec sleep 100")
			g := startGroup(t, s)
			awaitLine(t, s)
			_ = syscall.Kill(g.PIDs()[0], syscall.SIGKILL)
			stopGroup(t, g, orderly)
			if e := <-g.Exits(); e.Stopped || e.Signal != syscall.SIGKILL {
				t.Errorf("stopped %v, %v", e.Stopped, e)
			}
		})
	}
}

// Many processes in sessions of their own, half of which ignore SIGTERM: ending them takes hardly longer than their
// grace period, and no more memory than ending a few.
func TestManyLeftBehind(t *testing.T) {
	spec := shell(
		t,
		0,
		fmt.Sprintf(`i=0; while [ $i -lt %d ]; do setsid sleep 1000 & setsid sh -c 'trap "" TERM; exec sleep 1000' & i=$((i+1)); done; echo; exit 3`,
			testenv.Repeat(t, 100, 500)),
	)
	g := startGroup(t, spec)
	<-g.Exits()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	stopGroup(t, g, StopPolicy{Signal: syscall.SIGTERM, Grace: time.Minute, Leftovers: time.Second})
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	t.Logf("took %v", took)
	if took > 45*time.Second { // it waits for no grace period
		t.Errorf("took %v", took)
	}
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 64<<20 {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
}
