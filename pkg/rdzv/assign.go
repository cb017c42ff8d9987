package rdzv

// Assignment gives the ranks of one node's workers in a round: local rank i has global rank GlobalBase+i and role rank
// RoleBase+i.
type Assignment struct {
	GlobalBase      int // workers on nodes of lower group rank
	GlobalWorldSize int // workers on all nodes
	RoleBase        int // workers of the same role on nodes of lower group rank
	RoleWorldSize   int // workers of the same role on all nodes
}

// Assign returns the assignment of each member. The members are in the order of their group ranks. Global ranks follow
// the group ranks, and role ranks follow them within a role, as in torch 2.14,
// torch/distributed/elastic/agent/server/api.py (_assign_worker_ranks). Assign takes time linear in the number of
// nodes.
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
