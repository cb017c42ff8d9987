package group

import (
	"slices"

	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

// view is the leader's knowledge from which plan decides who keeps the store.
type view struct {
	self       replica.ID
	want       int        // voters, if there are enough members: 1, 3 or 5
	first      replica.ID // the only voter if only one is possible and this one is usable; 0: the leader
	voters     []member   // with the leader
	learners   []member
	candidates []string // addresses of processes that can become members, the best first
	late       bool     // a leaving or lost voter waits no longer for its replacement
}

// member is one member of the group as the leader sees it.
type member struct {
	id      replica.ID
	current bool // it has every entry that was committed a moment ago
	silent  bool // it has answered nothing for too long
	leaving bool // it will end soon
	apart   bool // it and another voter do not reach each other, and another process may take its place
}

func (m member) usable() bool { return !m.silent && !m.leaving && !m.apart }

// step is what the leader does next: at most one of its fields is set.
type step struct {
	add              string       // make the process at this address a learner
	voters, learners []replica.ID // change the members to these
	transfer         replica.ID   // hand the leadership to this voter
}

// plan decides the next step towards the wanted number of voters, or the largest possible odd number, all of them
// usable. No member becomes a voter before it is current: a majority must not depend on a member that lacks entries. If
// a lost voter has no replacement, the group falls back to fewer voters, because the loss of a second voter would end
// the group. Of two members, the one at Options.First votes, so that the loss of the other node never does harm.
func plan(v view) step {
	var voters, next, waiting, leaving []replica.ID // waiting: learners that are not current yet
	for _, m := range v.voters {
		switch {
		case m.usable():
			voters = append(voters, m.id)
		case m.leaving && !m.silent:
			leaving = append(leaving, m.id)
		}
	}
	// The leader comes first, so that it stays if there is only one voter.
	slices.SortStableFunc(voters, func(a, b replica.ID) int { return preference(a, v.self) - preference(b, v.self) })
	for _, m := range v.learners {
		switch {
		case !m.usable():
		case m.current:
			next = append(next, m.id)
		default:
			waiting = append(waiting, m.id)
		}
	}
	available := slices.Concat(voters, next)
	if len(available) == 0 {
		available = []replica.ID{v.self} // all members are leaving, and the leader leaves last
	}
	target := available[:odd(min(v.want, len(available)))]
	mayGrow := !v.late && (len(waiting) > 0 || len(available) < v.want && len(v.candidates) > 0)
	if len(target) < len(v.voters) && mayGrow || len(target) == 0 {
		target = ids(v.voters) // a replacement may come
	}
	if len(target) == 1 && !mayGrow && slices.Contains(available, v.first) {
		target = []replica.ID{v.first}
	}
	if slices.Contains(leaving, v.self) && len(voters) > 0 {
		return step{transfer: voters[0]} // the next leader removes this one
	}
	spare := without(slices.Concat(voters, next, waiting), target)
	usable := len(target) - len(without(target, available))
	spare = spare[:min(len(spare), max(0, v.want-usable))]
	if !sameIDs(target, ids(v.voters)) || !sameIDs(spare, ids(v.learners)) {
		return step{voters: target, learners: spare}
	}
	if len(v.candidates) > 0 && len(available)+len(waiting) < v.want {
		return step{add: v.candidates[0]}
	}
	return step{}
}

// preference is a sort key that puts who first.
func preference(id, who replica.ID) int {
	if id == who {
		return 0
	}
	return 1
}

// without returns the elements of a that are not in b.
func without(a, b []replica.ID) []replica.ID {
	return slices.DeleteFunc(slices.Clone(a), func(id replica.ID) bool { return slices.Contains(b, id) })
}

// odd returns the greatest odd number up to n, or 0.
func odd(n int) int {
	if n > 0 && n%2 == 0 {
		return n - 1
	}
	return n
}

func ids(members []member) []replica.ID {
	var ids []replica.ID
	for _, m := range members {
		ids = append(ids, m.id)
	}
	return ids
}

// sameIDs reports whether a and b have the same elements. Neither may contain an id twice.
func sameIDs(a, b []replica.ID) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(id replica.ID) bool { return !slices.Contains(b, id) })
}
