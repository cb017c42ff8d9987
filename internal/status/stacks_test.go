package status

import (
	"crypto/rand"
	"testing"

	"github.com/elasticrun/elasticrun/internal/stacks"
)

// The stacks of a node fit into the store, whatever is deep: threads of workers, or processes below them.
func TestPackStacksFit(t *testing.T) {
	t.Parallel()
	frames := make([]stacks.Frame, 8000)
	for i := range frames {
		frames[i].Function = rand.Text()
	}
	for name, worker := range map[string]stacks.Worker{
		"threads":  {State: "sleeping", Threads: []stacks.Thread{{Frames: frames}}},
		"children": {State: "sleeping", Children: []stacks.Child{{Frames: frames}}},
	} {
		many := make([]stacks.Worker, 16)
		for i := range many {
			many[i] = worker
			many[i].PythonPID = i + 1
		}
		packed := PackStacks(many)
		if len(packed) > maxStacks {
			t.Errorf("%s: %d bytes, want at most %d", name, len(packed), maxStacks)
		}
		got, err := UnpackStacks(packed)
		if err != nil || len(got) != len(many) {
			t.Fatalf("%s: %d workers, %v", name, len(got), err)
		}
		if first := got[0]; len(first.Threads)+len(first.Children) == 0 || first.Problem != "" {
			t.Errorf("%s: the first worker has no stacks: %q", name, first.Problem)
		}
		if last := got[len(got)-1]; last.Problem == "" || last.State != "sleeping" || last.PythonPID != len(got) {
			t.Errorf("%s: the last worker: %+v", name, last)
		}
	}
}
