package elastic

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// blame keeps what each node of a round tells of its failures: the last word of each, since a node knows more of a failure once it has stopped its
// workers than when it saw the first one end. The zero value has none.
type blame struct {
	nodes map[int]blamed // by rank
	// failed says that a worker has failed by itself: those that were told to stop do not make a failure of a round, though they may have
	// caused one.
	failed bool
}

// blamed is a node's likeliest cause.
type blamed struct {
	failure rdzv.Failure
	at      time.Duration // when it happened
}

// tell takes note of what the node of that rank names.
func (b *blame) tell(now time.Duration, rank int, f rdzv.Failure) {
	next := blamed{f, now - f.Age}
	if old, again := b.nodes[rank]; again && old.failure.PID == f.PID && old.failure.Grade == f.Grade {
		next.at = min(next.at, old.at) // a report that was late makes a failure younger
	}
	if b.nodes == nil {
		b.nodes = map[int]blamed{}
	}
	b.nodes[rank] = next
	b.failed = b.failed || !f.OnlyStopped
}

// final reports whether a restart cannot help in a job of so many nodes, since the program cannot be executed: in its first round on
// any node; later, when it has been executed before, only if all nodes say so, and not because of a newcomer alone.
func (b *blame) final(first bool, nodes int) bool {
	count := 0
	for _, one := range b.nodes {
		if one.failure.Final {
			count++
		}
	}
	return count > 0 && (first || count == nodes)
}

// compareBlamed orders causes, the likeliest first.
func compareBlamed(x, y blamed) int {
	return cmp.Or(
		cmp.Compare(x.failure.Grade, y.failure.Grade),
		cmp.Compare(x.at, y.at),
		cmp.Compare(x.failure.GlobalRank, y.failure.GlobalRank))
}

// first returns the rank of the node with the likeliest cause; false where no worker has failed by itself.
func (b *blame) first() (rank int, failed bool) {
	rank = -1
	for r, one := range b.nodes {
		if rank < 0 || compareBlamed(one, b.nodes[rank]) < 0 {
			rank = r
		}
	}
	return rank, b.failed && rank >= 0
}

// outcome returns the likeliest cause, with its age as of now, and at most rdzv.MaxOthers of those that other nodes name, without their texts.
func (b *blame) outcome(now time.Duration) (cause *rdzv.Failure, others []rdzv.Failure) {
	all := make([]blamed, 0, len(b.nodes))
	for _, rank := range slices.Sorted(maps.Keys(b.nodes)) {
		all = append(all, b.nodes[rank])
	}
	slices.SortStableFunc(all, compareBlamed)
	if absent := slices.IndexFunc(all, func(one blamed) bool { return one.failure.Absent }); absent > 0 && all[0].failure.Waited {
		root := all[absent]
		all = slices.Insert(slices.Delete(all, absent, absent+1), 0, root)
	}
	for i, one := range all[:min(len(all), 1+rdzv.MaxOthers)] {
		f := one.failure
		f.Age = now - one.at
		if i == 0 {
			cause = &f
			continue
		}
		f.Text = ""
		others = append(others, f)
	}
	return cause, others
}
