package simulate

import (
	"fmt"
	"slices"
)

// ledger knows what the agents were told, and checks that it fits together.
type ledger struct {
	rounds   map[int]*round
	complete int                  // the latest round in which all are
	halted   map[int]map[int]bool // by round, the agents that have stopped its workers
	ends     int
}

// round is a round as its nodes know it.
type round struct {
	nodes, restarts int
	byRank          []*entry // nil: has not come yet
	come            int
}

func newLedger() *ledger {
	return &ledger{rounds: map[int]*round{}, complete: -1, halted: map[int]map[int]bool{}}
}

// take takes note of news. An error is a defect of the rendezvous.
func (l *ledger) take(n news) error {
	for i := range n.Entries {
		if err := l.enter(&n.Entries[i]); err != nil {
			return err
		}
	}
	for _, s := range n.Stops {
		if l.halted[s.Round] == nil {
			l.halted[s.Round] = map[int]bool{}
		}
		l.halted[s.Round][s.Agent] = true
	}
	for _, e := range n.Ends {
		if e.Err != "" {
			return fmt.Errorf("agent %d: %s", e.Agent, e.Err)
		}
		l.ends++
	}
	return nil
}

// enter takes note of an agent's rank.
func (l *ledger) enter(e *entry) error {
	r := l.rounds[e.Round]
	if r == nil {
		if e.Nodes < 1 {
			return fmt.Errorf("round %d: agent %d was told of %d nodes", e.Round, e.Agent, e.Nodes)
		}
		r = &round{nodes: e.Nodes, restarts: e.Restarts, byRank: make([]*entry, e.Nodes)}
		l.rounds[e.Round] = r
	}
	switch {
	case e.Nodes != r.nodes || e.Restarts != r.restarts:
		return fmt.Errorf("round %d: agent %d was told of %d nodes and %d restarts, another one of %d and %d",
			e.Round, e.Agent, e.Nodes, e.Restarts, r.nodes, r.restarts)
	case e.Rank < 0 || e.Rank >= r.nodes:
		return fmt.Errorf("round %d: agent %d has rank %d of %d", e.Round, e.Agent, e.Rank, r.nodes)
	case r.byRank[e.Rank] != nil:
		return fmt.Errorf("round %d: agents %d and %d both have rank %d", e.Round, r.byRank[e.Rank].Agent, e.Agent, e.Rank)
	}
	r.byRank[e.Rank] = e
	if r.come++; r.come < r.nodes {
		return nil
	}
	l.complete = max(l.complete, e.Round)
	return r.check(e.Round)
}

// check checks what can be checked only once all are there.
func (r *round) check(number int) error {
	agents, world := map[int]bool{}, 0
	for _, e := range r.byRank {
		if e.Base != world {
			return fmt.Errorf("round %d: the first worker of rank %d has global rank %d, and is number %d", number, e.Rank, e.Base, world)
		}
		world += e.Nproc
		agents[e.Agent] = true
	}
	for _, e := range r.byRank {
		if e.World != world {
			return fmt.Errorf("round %d: rank %d was told of %d workers of %d", number, e.Rank, e.World, world)
		}
	}
	if len(agents) != r.nodes {
		return fmt.Errorf("round %d: %d agents have its %d ranks", number, len(agents), r.nodes)
	}
	return nil
}

// latest is the latest round in which all are; false before the first.
func (l *ledger) latest() (int, bool) { return l.complete, l.complete >= 0 }

// members are the agents in a round, by number.
func (l *ledger) members(number int) []int {
	r := l.rounds[number]
	if r == nil {
		return nil
	}
	out := make([]int, 0, r.nodes)
	for _, e := range r.byRank {
		if e != nil {
			out = append(out, e.Agent)
		}
	}
	slices.Sort(out)
	return out
}

// stops is how many agents were told to stop their workers of a round.
func (l *ledger) stops(number int) int { return len(l.halted[number]) }

func (l *ledger) stopped(agent, number int) bool { return l.halted[number][agent] }
