package rounds

import (
	"cmp"
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// candidate is a node that could be in the next round.
type candidate struct {
	id      coord.SessionID
	arrived coord.Revision // revision of its session's first report
	node    Node
	offer   Offer
}

// rankMembers chooses the members of the next round, at most limit, and returns them in rank order.
//
// Members of the round before keep their order. The rank of a node that has gone goes to the same identity if it has
// come back, otherwise to the first newcomer. The gaps that remain are closed, and the rest of the newcomers come last.
// Without a round before, the first limit candidates to arrive are ordered by hint, host and arrival.
func rankMembers(before []RecordMember, candidates []candidate, limit int) []candidate {
	byID := make(map[coord.SessionID]int, len(candidates))
	byIdentity := make(map[string]int, len(candidates))
	for i, c := range candidates {
		byID[c.id] = i
		byIdentity[c.node.Identity] = i
	}
	taken := make([]bool, len(candidates))
	ranks := make([]int, len(before)) // index into candidates, -1 for a gap
	for r, m := range before {
		i, ok := byID[m.ID]
		if !ok {
			i, ok = byIdentity[m.Identity]
		}
		if ranks[r] = -1; ok && !taken[i] && limit > 0 {
			ranks[r], taken[i] = i, true
			limit--
		}
	}
	var newcomers []int // the first limit to arrive, in rank order
	for i := range candidates {
		if !taken[i] {
			newcomers = append(newcomers, i)
		}
	}
	slices.SortFunc(newcomers, func(a, b int) int { return cmp.Compare(candidates[a].arrived, candidates[b].arrived) })
	newcomers = newcomers[:min(len(newcomers), limit)]
	slices.SortStableFunc(newcomers, func(a, b int) int { return compareNodes(candidates[a].node, candidates[b].node) })

	out := make([]candidate, 0, len(before)+len(newcomers))
	for _, i := range ranks {
		if i < 0 && len(newcomers) > 0 {
			i, newcomers = newcomers[0], newcomers[1:]
		}
		if i >= 0 {
			out = append(out, candidates[i])
		}
	}
	for _, i := range newcomers {
		out = append(out, candidates[i])
	}
	return out
}

// staticOrder returns the candidates whose hints are the ranks 0 to n-1; complete is false if one of them is missing.
// Of several candidates with one hint the first to arrive gets the rank.
func staticOrder(candidates []candidate, n int) (out []candidate, complete bool) {
	out = make([]candidate, n)
	found := 0
	for _, c := range candidates {
		h := c.node.Hint
		if h < 0 || h >= n || out[h].id != "" && out[h].arrived < c.arrived {
			continue
		}
		if out[h].id == "" {
			found++
		}
		out[h] = c
	}
	return out, found == n
}

// compareNodes orders nodes by hint, those without a hint last, then by host name and identity.
func compareNodes(a, b Node) int {
	hint := func(n Node) uint { return uint(n.Hint) } // -1 becomes the largest
	return cmp.Or(cmp.Compare(hint(a), hint(b)), CompareNatural(a.Host, b.Host), CompareNatural(a.Identity, b.Identity))
}

// CompareNatural compares texts and treats the numbers in them as numbers: node2 is before node10. Texts that differ
// only in leading zeros of numbers are equal. The result is that of [cmp.Compare].
func CompareNatural(a, b string) int {
	for a != "" && b != "" {
		na, nb := leadingDigits(a), leadingDigits(b)
		if na == 0 || nb == 0 {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		x, y := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
		if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); c != 0 {
			return c
		}
		a, b = a[na:], b[nb:]
	}
	return cmp.Compare(len(a), len(b))
}

// leadingDigits counts the digits at the beginning of s.
func leadingDigits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// usedBefore returns how the time before a round was used; nil if nodes have only waited, as before the first round.
func usedBefore(r *Record) *shortUsed {
	if r.Ledger == nil || r.Ledger.Used.Total() == r.Ledger.Used.Idle {
		return nil
	}
	used := shortUsed(r.Ledger.Used.Rounded())
	return &used
}

// placesOf returns each member's place in a round, in rank order. It follows from the record alone, but for the fields
// about the coordination store, which assignRanks sets.
func placesOf(r *Record) []Place {
	members := make([]rdzv.Member, len(r.Members))
	for i, m := range r.Members {
		members[i] = rdzv.Member{Role: m.Role, LocalWorldSize: m.Nproc}
	}
	var store Offer
	if r.Members[0].Store != nil {
		store = *r.Members[0].Store
	}
	used := usedBefore(r)
	out := make([]Place, len(members))
	for i, a := range rdzv.Assign(members) {
		out[i] = Place{
			Rank: i, Nodes: len(members), Assignment: a, Restarts: r.Restarts, Store: store, Lost: r.Lost, Same: r.Same,
			Used: used,
		}
	}
	return out
}

// chooseRank0 moves the first member that can be rank 0 to the front of members. If no member can, the first other
// candidate to arrive that can takes the last member's place. It returns false if no candidate can be rank 0.
func chooseRank0(members, all []candidate, unreachable func(identity string) bool) ([]candidate, bool) {
	can := func(c candidate) bool { return !unreachable(c.node.Identity) }
	i := 0
	for i < len(members) && !can(members[i]) {
		i++
	}
	if i == len(members) {
		var other *candidate
		for j := range all {
			if c := &all[j]; can(*c) && (other == nil || c.arrived < other.arrived) {
				other = c
			}
		}
		if other == nil {
			return members, false
		}
		i--
		members[i] = *other
	}
	first := members[i]
	copy(members[1:i+1], members[:i])
	members[0] = first
	return members, true
}
