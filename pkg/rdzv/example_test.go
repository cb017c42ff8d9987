package rdzv_test

import (
	"fmt"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Two trainer nodes and one reader node get ranks in the order of the nodes.
func ExampleAssign() {
	members := []rdzv.Member{
		{Role: "trainer", LocalWorldSize: 2},
		{Role: "reader", LocalWorldSize: 1},
		{Role: "trainer", LocalWorldSize: 4},
	}
	for node, a := range rdzv.Assign(members) {
		fmt.Printf("node %d: first rank %d of %d, first %s rank %d of %d\n",
			node, a.GlobalBase, a.GlobalWorldSize, members[node].Role, a.RoleBase, a.RoleWorldSize)
	}
	// Output:
	// node 0: first rank 0 of 7, first trainer rank 0 of 6
	// node 1: first rank 2 of 7, first reader rank 0 of 1
	// node 2: first rank 3 of 7, first trainer rank 2 of 6
}
