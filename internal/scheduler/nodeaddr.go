package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/internal/lazyregexp"
	"github.com/elasticrun/elasticrun/internal/oneshot"
)

// askTimeout limits the time that Slurm's controller may take to reply.
const askTimeout = 5 * time.Second

// NodeAddr asks Slurm, by scontrol, for the address of a node. The name of a node need not be a host name.
func NodeAddr(ctx context.Context, node string) (string, error) {
	var out oneshot.Head
	var errs oneshot.Tail
	c := oneshot.Command{
		Argv: []string{"scontrol", "--oneliner", "show", "node", node}, Stdout: &out, Stderr: &errs, Limit: askTimeout,
	}
	if err := c.Run(ctx); err != nil {
		if last := errs.LastLine(); last != "" {
			err = fmt.Errorf("%w (%s)", err, last)
		}
		return "", fmt.Errorf("ask scontrol for the node %s: %w", node, err)
	}
	addr := nodeAddr(out.String())
	if addr == "" {
		return "", fmt.Errorf("ask scontrol for the node %s: the reply has no NodeAddr", node)
	}
	return addr, nil
}

var nodeAddrField = lazyregexp.New(`(?:^|\s)NodeAddr=(\S+)`)

// nodeAddr finds the address in scontrol's description of a node.
func nodeAddr(shown string) string {
	found := nodeAddrField().FindStringSubmatch(shown)
	if found == nil {
		return ""
	}
	return found[1]
}
