package simulate

import (
	"fmt"
	"slices"
)

// checker records the ranks that the agents got, and checks that they are consistent.
type checker struct {
	rounds   map[int]*round
	complete int                  // the latest round that all its nodes have entered; -1 before the first
	stopped  map[int]map[int]bool // by round, the agents that have stopped its workers
	ends     int
}

// round is a round as its nodes see it.
type round struct {
	nodes, restarts int
	byRank          []*entry // nil: has not entered yet
	entered         int
}

func newChecker() *checker {
	return &checker{rounds: map[int]*round{}, complete: -1, stopped: map[int]map[int]bool{}}
}

// take records an update. An error is a defect of the rendezvous.
func (l *checker) take(n update) error {
	for i := range n.Entries {
		if err := l.enter(&n.Entries[i]); err != nil {
			return err
		}
	}
	for _, s := range n.Stops {
		if l.stopped[s.Round] == nil {
			l.stopped[s.Round] = map[int]bool{}
		}
		l.stopped[s.Round][s.Agent] = true
	}
	for _, e := range n.Ends {
		if e.Err != "" {
			return fmt.Errorf("agent %d: %s", e.Agent, e.Err)
		}
		l.ends++
	}
	return nil
}

// enter records an agent's rank.
func (l *checker) enter(e *entry) error {
	r := l.rounds[e.Round]
	if r == nil {
		if e.Nodes < 1 {
			return fmt.Errorf("round %d: agent %d got %d nodes", e.Round, e.Agent, e.Nodes)
		}
		r = &round{nodes: e.Nodes, restarts: e.Restarts, byRank: make([]*entry, e.Nodes)}
		l.rounds[e.Round] = r
	}
	switch {
	case e.Nodes != r.nodes || e.Restarts != r.restarts:
		return fmt.Errorf("round %d: agent %d got %d nodes and %d restarts, another agent %d and %d",
			e.Round, e.Agent, e.Nodes, e.Restarts, r.nodes, r.restarts)
	case e.Rank < 0 || e.Rank >= r.nodes:
		return fmt.Errorf("round %d: agent %d has rank %d of %d", e.Round, e.Agent, e.Rank, r.nodes)
	case r.byRank[e.Rank] != nil:
		return fmt.Errorf("round %d: agents %d and %d both have rank %d", e.Round, r.byRank[e.Rank].Agent, e.Agent, e.Rank)
	}
	r.byRank[e.Rank] = e
	if r.entered++; r.entered < r.nodes {
		return nil
	}
	l.complete = max(l.complete, e.Round)
	return r.check(e.Round)
}

// check checks a round that all its nodes have entered.
func (r *round) check(number int) error {
	agents, world := map[int]bool{}, 0
	for _, e := range r.byRank {
		if e.Base != world {
			return fmt.Errorf("round %d: the first worker of rank %d has global rank %d instead of %d", number, e.Rank,
				e.Base, world)
		}
		world += e.Nproc
		agents[e.Agent] = true
	}
	for _, e := range r.byRank {
		if e.World != world {
			return fmt.Errorf("round %d: rank %d got a world size of %d instead of %d", number, e.Rank, e.World, world)
		}
	}
	if len(agents) != r.nodes {
		return fmt.Errorf("round %d: %d agents have its %d ranks", number, len(agents), r.nodes)
	}
	return nil
}

// members returns the agents in a round, sorted by number.
func (l *checker) members(number int) []int {
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

// stops returns how many agents have stopped their workers of a round.
func (l *checker) stops(number int) int { return len(l.stopped[number]) }

// hasStopped reports whether an agent has stopped its workers of a round.
func (l *checker) hasStopped(agent, number int) bool { return l.stopped[number][agent] }
