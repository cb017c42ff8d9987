package rdzv

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestAssign(t *testing.T) {
	member := func(role string, n int) Member { return Member{Role: role, LocalWorldSize: n} }
	tests := []struct {
		name    string
		members []Member
		want    []Assignment
	}{
		{"none", nil, []Assignment{}},
		{"one node", []Member{member("trainer", 4)}, []Assignment{{0, 4, 0, 4}}},
		{
			"equal nodes",
			[]Member{member("trainer", 2), member("trainer", 2), member("trainer", 2)},
			[]Assignment{{0, 6, 0, 6}, {2, 6, 2, 6}, {4, 6, 4, 6}},
		},
		{
			"different sizes",
			[]Member{member("trainer", 1), member("trainer", 3), member("trainer", 2)},
			[]Assignment{{0, 6, 0, 6}, {1, 6, 1, 6}, {4, 6, 4, 6}},
		},
		{
			"roles between each other",
			[]Member{member("trainer", 2), member("reader", 1), member("trainer", 3), member("reader", 4)},
			[]Assignment{{0, 10, 0, 5}, {2, 10, 0, 5}, {3, 10, 2, 5}, {6, 10, 1, 5}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Assign(tt.members)); diff != "" {
				t.Errorf("Assign (-want +got):\n%s", diff)
			}
		})
	}
}

// Ranks are dense and unique, over all workers and within each role.
func TestAssignDense(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Member {
			return Member{
				Role:           rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "role"),
				LocalWorldSize: rapid.IntRange(1, 9).Draw(t, "n"),
			}
		}), 1, 20).Draw(t, "members")
		global, role := map[int]bool{}, map[string]map[int]bool{}
		assigned := Assign(members)
		for i, a := range assigned {
			r := members[i].Role
			if role[r] == nil {
				role[r] = map[int]bool{}
			}
			for w := range members[i].LocalWorldSize {
				global[a.GlobalBase+w] = true
				role[r][a.RoleBase+w] = true
			}
		}
		for i, a := range assigned {
			checkDense(t, "global", global, a.GlobalWorldSize)
			checkDense(t, "role", role[members[i].Role], a.RoleWorldSize)
		}
	})
}

func checkDense(t *rapid.T, what string, ranks map[int]bool, size int) {
	if len(ranks) != size {
		t.Fatalf("%s ranks: %d distinct, world size %d", what, len(ranks), size)
	}
	for i := range size {
		if !ranks[i] {
			t.Fatalf("%s rank %d is missing of %d", what, i, size)
		}
	}
}
