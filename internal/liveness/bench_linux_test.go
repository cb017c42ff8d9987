package liveness

import (
	"bufio"
	"os/exec"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// BenchmarkSample measures one sample of 64 Python workers: what it costs while they print, when stacks are read, and
// when processes are listed too.
func BenchmarkSample(b *testing.B) {
	const workers = 64
	var list []Worker
	for i := range workers {
		cmd := exec.Command(testenv.Python(b), "-c", prelude+"print(flush=True)\nwhile True: time.sleep(0.001 * 100)")
		out := testenv.StartWithOutput(b, cmd)
		b.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		if _, err := bufio.NewReader(out).ReadByte(); err != nil {
			b.Fatal(err)
		}
		list = append(list, Worker{LocalRank: i, PID: cmd.Process.Pid, Heartbeat: b.TempDir() + "/none"})
	}
	m := newMachine(list, func(int, error) {})
	for _, tt := range []struct {
		name         string
		stacks, tree bool
	}{{"counters", false, false}, {"stacks", true, false}, {"processes", true, true}} {
		b.Run(tt.name, func(b *testing.B) {
			b.ReportAllocs()
			n := newNode(time.Hour, list)
			for b.Loop() {
				n.observe(time.Second, m.observe(b.Context()))
				if tt.tree {
					n.addTrees(m.trees(b.Context()))
				}
				if tt.stacks {
					wishes := make([]stackWish, workers)
					for i := range wishes {
						wishes[i] = mainStack
					}
					n.addStacks(m.stacks(b.Context(), wishes))
				}
				n.finish()
			}
		})
	}
}
