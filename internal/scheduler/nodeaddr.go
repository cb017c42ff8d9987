package scheduler

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"time"
)

// askTimeout is how long Slurm's controller may take to answer.
const askTimeout = 5 * time.Second

// NodeAddr asks Slurm for the address of one of its nodes, whose name need not be one that can be looked up.
func NodeAddr(ctx context.Context, node string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "scontrol", "--oneliner", "show", "node", node)
	cmd.WaitDelay = time.Second // a child may hold the pipe
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ask scontrol for the node %s: %w", node, err)
	}
	addr := nodeAddr(string(out))
	if addr == "" {
		return "", fmt.Errorf("ask scontrol for the node %s: it tells no NodeAddr", node)
	}
	return addr, nil
}

var nodeAddrField = regexp.MustCompile(`(?:^|\s)NodeAddr=(\S+)`)

// nodeAddr finds the address in what scontrol shows of a node.
func nodeAddr(shown string) string {
	found := nodeAddrField.FindStringSubmatch(shown)
	if found == nil {
		return ""
	}
	return found[1]
}
