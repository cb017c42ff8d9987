package status

import (
	"crypto/rand"
	"encoding/base64"
	"testing"

	"github.com/elasticrun/elasticrun/internal/stacks"
)

// The stacks of a node fit into the store, whatever is deep: threads of workers, or processes below them.
func TestPackStacksFit(t *testing.T) {
	t.Parallel()
	const limit = 16 << 10
	deep := func() []stacks.Frame {
		random := make([]byte, limit/4) // which gzip does not make smaller
		_, _ = rand.Read(random)        // never fails
		return []stacks.Frame{{Function: base64.StdEncoding.EncodeToString(random)}}
	}
	for name, add := range map[string]func(*stacks.Worker){
		"threads":  func(w *stacks.Worker) { w.Threads = []stacks.Thread{{Frames: deep()}} },
		"children": func(w *stacks.Worker) { w.Children = []stacks.Child{{Frames: deep()}} },
	} {
		workers := make([]stacks.Worker, 6)
		for i := range workers {
			workers[i] = stacks.Worker{State: "sleeping", PythonPID: i + 1}
			add(&workers[i])
		}
		packed := packStacks(workers, limit)
		if len(packed) > limit {
			t.Errorf("%s: %d bytes, want at most %d", name, len(packed), limit)
		}
		got, err := UnpackStacks(packed)
		if err != nil || len(got) != len(workers) {
			t.Fatalf("%s: %d workers, %v", name, len(got), err)
		}
		if first := got[0]; len(first.Threads)+len(first.Children) == 0 || first.Problem != "" {
			t.Errorf("%s: the first worker has no stacks: %q", name, first.Problem)
		}
		last := got[len(got)-1]
		if last.Problem == "" || last.State != "sleeping" || last.PythonPID != len(got) {
			t.Errorf("%s: the last worker: problem %q, %s, pid %d", name, last.Problem, last.State, last.PythonPID)
		}
	}
}
