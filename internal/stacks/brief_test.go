package stacks

import (
	"fmt"
	"strings"
	"testing"
)

// TestBrief checks that a brief text keeps its limit, names every group that it has room for, and says what is missing.
func TestBrief(t *testing.T) {
	deep := func(rank int, function string, depth int) Worker {
		w := at(rank, function)
		for range depth {
			w.Threads[0].Frames = append(w.Threads[0].Frames, Frame{"deep.py", 1, "recurse"})
		}
		return w
	}
	const limit = 20
	var many []Worker
	for rank := range 9 {
		many = append(many, deep(rank, fmt.Sprintf("f%d", rank), 9))
	}
	for _, tt := range []struct {
		name    string
		workers []Worker
		want    []string
	}{
		{"all of it", []Worker{at(0, "wait"), at(1, "save")}, []string{"    wait (train.py:7)", "    save (train.py:7)"}},
		{"one deep stack", []Worker{deep(0, "wait", 30)}, []string{"    wait (train.py:7)", "    ... 14 more lines ..."}},
		{
			"two deep stacks",
			[]Worker{deep(0, "wait", 30), deep(1, "save", 30)},
			[]string{"    wait (train.py:7)", "    save (train.py:7)", "    ... 26 more lines ..."},
		},
		{"many stacks", many, []string{"    f0 (train.py:7)", "    f3 (train.py:7)", "... and 5 more with other stacks"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Brief(Merge(tt.workers, false), false, limit)
			if n := strings.Count(got, "\n"); n > limit {
				t.Errorf("%d lines", n)
			}
			for _, line := range tt.want {
				if !strings.Contains("\n"+got, "\n"+line+"\n") {
					t.Errorf("without %q", line)
				}
			}
			if t.Failed() {
				t.Log(got)
			}
		})
	}
}
