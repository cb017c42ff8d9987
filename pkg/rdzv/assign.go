package rdzv

// Assignment places one node's workers among all workers of a round: local rank
// i has global rank GlobalBase+i and role rank RoleBase+i.
type Assignment struct {
	GlobalBase      int // workers on nodes of lower group rank
	GlobalWorldSize int // workers on all nodes
	RoleBase        int // workers of the same role on nodes of lower group rank
	RoleWorldSize   int // workers of the same role on all nodes
}

// Assign computes every node's assignment; members are in group-rank order. It
// is the algorithm of seed 002 (_assign_worker_ranks): global ranks follow the
// group rank, role ranks follow it within the role. Linear in the number of nodes.
func Assign(members []Member) []Assignment {
	out := make([]Assignment, len(members))
	global := 0
	role := make(map[string]int)
	for i, m := range members {
		out[i].GlobalBase = global
		out[i].RoleBase = role[m.Role]
		global += m.LocalWorldSize
		role[m.Role] += m.LocalWorldSize
	}
	for i, m := range members {
		out[i].GlobalWorldSize = global
		out[i].RoleWorldSize = role[m.Role]
	}
	return out
}
