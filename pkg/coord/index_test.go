package coord

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestIndexIsASortedSet compares an index, whose chunks split and vanish, with a map.
func TestIndexIsASortedSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x index
		have := map[string]bool{}
		for range 3 {
			from, n := rapid.IntRange(0, 3000).Draw(t, "from"), rapid.IntRange(0, 1500).Draw(t, "n")
			add, step := rapid.Bool().Draw(t, "add"), rapid.SampledFrom([]int{1, 7, 1999}).Draw(t, "step")
			for i := range n {
				s := fmt.Sprint((from + i*step) % 4001)
				switch {
				case add && !have[s]:
					x.add(s)
					have[s] = true
				case !add && have[s]:
					x.remove(s)
					delete(have, s)
				}
			}
			sorted := slices.Sorted(maps.Keys(have))
			for _, prefix := range []string{"", "1", "40", fmt.Sprint(from), "5000", "x"} {
				var got, want []string
				x.each(prefix, func(s string) { got = append(got, s) })
				for _, s := range sorted {
					if len(s) >= len(prefix) && s[:len(prefix)] == prefix {
						want = append(want, s)
					}
				}
				if !slices.Equal(want, got) {
					t.Fatalf("with prefix %q there are %d, want %d", prefix, len(got), len(want))
				}
			}
		}
	})
}
