package scheduler

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"time"
)

// askTimeout limits the time that Slurm's controller may take to reply.
const askTimeout = 5 * time.Second

// NodeAddr asks Slurm for the address of a node. The name of a node need not be a host name.
func NodeAddr(ctx context.Context, node string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "scontrol", "--oneliner", "show", "node", node)
	cmd.WaitDelay = time.Second // a child may keep the pipe open
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ask scontrol for the node %s: %w", node, err)
	}
	addr := nodeAddr(string(out))
	if addr == "" {
		return "", fmt.Errorf("ask scontrol for the node %s: the reply has no NodeAddr", node)
	}
	return addr, nil
}

var nodeAddrField = regexp.MustCompile(`(?:^|\s)NodeAddr=(\S+)`)

// nodeAddr finds the address in scontrol's description of a node.
func nodeAddr(shown string) string {
	found := nodeAddrField.FindStringSubmatch(shown)
	if found == nil {
		return ""
	}
	return found[1]
}
