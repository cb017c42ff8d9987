package elastic

import (
	"context"
	"errors"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// maxAllThreads is the largest round, in nodes, in which an agent that looks at the job's workers asks for the stacks
// of all threads. In larger rounds it asks for those of the main threads, which are a few KB a node.
const maxAllThreads = 256

// Quiet implements rdzv.Handler.
func (h *Handler) Quiet(q *rdzv.Quiet) {
	h.call(func(now time.Duration) { h.m.RecordQuiet(now, q) })
}

// sendLook passes on an order to look, in place of one that was not begun yet.
func (h *Handler) sendLook(look rounds.HangLook) {
	select {
	case <-h.looks:
	default:
	}
	_, _, nodes := h.m.LastPlace()
	h.looks <- lookOrder{look, nodes}
}

// lookOrder is an order to look at the workers of a round of so many nodes.
type lookOrder struct {
	rounds.HangLook
	nodes int
}

// examineHangs looks at all workers of the job when the leader asks for it, and sends what was found.
func (d *driver) examineHangs(ctx context.Context, findings chan<- rounds.HangFinding) error {
	for {
		select {
		case look := <-d.looks:
			f := d.examine(ctx, look.Round, d.collectStacks(ctx, look))
			f.Look = look.HangLook
			select {
			case findings <- f:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// errAllReplied ends the watch of an agent that looks at the job's workers.
var errAllReplied = errors.New("all agents have replied")

// collectStacks looks at the workers of a round on all of its nodes, and returns the replies by rank. A node that does
// not reply in time has no stacks. The result is nil if the round is not known.
func (d *driver) collectStacks(ctx context.Context, look lookOrder) []rounds.NodeStacks {
	ctx, cancel := context.WithTimeout(ctx, rounds.LookReplyTimeout)
	defer cancel()
	request := rounds.StacksRequest{Look: true, AllThreads: look.nodes <= maxAllThreads}
	own := make(chan []byte, 1)
	go func() { own <- d.stacks(ctx, request) }()
	var nodes []rounds.NodeStacks
	o := newObserver(d.store, d.prefix)
	err := o.run(ctx, wish{Stacks: true, StacksRequest: request}, func(s Snapshot) error {
		var complete bool
		if nodes, complete = o.replies(s, look.Round); complete {
			return errAllReplied
		}
		return nil
	})
	if !errors.Is(err, errAllReplied) {
		d.log.Debug().Err(err).Msg("not all nodes have replied to a look at their workers")
	}
	d.put(context.WithoutCancel(ctx), rounds.PrefixWatcher, nil)
	mine := <-own
	for i := range nodes {
		if nodes[i].Own {
			nodes[i].Stacks = mine
		}
	}
	return nodes
}

// replies returns what the nodes of a round have replied. complete says that every other node has replied or has gone.
func (o *observer) replies(s Snapshot, round int) (nodes []rounds.NodeStacks, complete bool) {
	if s.Record == nil || s.Record.Round != round {
		return nil, false
	}
	complete = true
	for _, a := range s.Agents {
		if a.Rank < 0 {
			break
		}
		n := rounds.NodeStacks{
			Rank: a.Rank, Host: a.Host, Stacks: a.Stacks, Gone: a.Departed,
			Own: s.Record.Members[a.Rank].ID == o.store.Session(),
		}
		nodes, complete = append(nodes, n), complete && (n.Own || n.Gone || n.Stacks != nil)
	}
	return nodes, complete
}
