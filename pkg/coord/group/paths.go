package group

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

const (
	// pathTicks bounds the connect and the handshake between two voters, each separately.
	pathTicks = 20
	// retryTicks is the time until the next check if a path between voters is missing or unknown.
	retryTicks = 30
	// recheckTicks is the time until the next check if each voter reaches every other one.
	recheckTicks = 400
	// apartTicks is how long the leader remembers that two addresses did not reach each other.
	apartTicks = 6000
)

// paths is the leader's record of the paths between the other voters. The leader itself reaches all of them. But if it
// is lost, one of them must reach a majority without it. The zero value is an empty record.
type paths struct {
	term   uint64     // of the leadership that made the checks
	latest *pathCheck // nil before the first one
	found  map[[2]replica.ID]route
	apart  map[[2]string]int // when two addresses, the lesser first, were last found apart, in ticks
}

// pathCheck is one check of all paths. The leader ignores answers to an earlier check.
type pathCheck struct {
	voters []replica.ID // without the leader
	began  int          // in ticks
}

// route is the path from one voter to another one.
type route struct {
	reason string // why there is no path; "" if there is one
	since  int    // the tick of the first check in an unbroken series that found no path
	last   int    // the tick of the latest check in that series
}

// isApart reports whether the path has been missing so long that the leader would know the voter at its end to be
// silent if that voter had ended.
func (r route) isApart() bool { return r.reason != "" && r.last-r.since >= silentTicks }

// due reports whether the paths between these voters must be checked now.
func (p *paths) due(now int, voters []replica.ID) bool {
	if p.latest == nil || !sameIDs(voters, p.latest.voters) {
		return true
	}
	pause := retryTicks
	if p.complete(voters) {
		pause = recheckTicks
	}
	return now-p.latest.began >= pause
}

// begin begins a check. It forgets the records of all other members.
func (p *paths) begin(now int, voters []replica.ID) *pathCheck {
	found := map[[2]replica.ID]route{}
	for ends, route := range p.found {
		if slices.Contains(voters, ends[0]) && slices.Contains(voters, ends[1]) {
			found[ends] = route
		}
	}
	p.found = found
	p.latest = &pathCheck{voters: voters, began: now}
	return p.latest
}

// note records whether the voter from reaches the voter to. reason says why not; it is empty if it does.
func (p *paths) note(now int, from, to replica.ID, reason string) {
	former := p.found[[2]replica.ID{from, to}]
	found := route{reason: reason, since: now, last: now}
	if former.reason != "" {
		found.since = former.since
	}
	p.found[[2]replica.ID{from, to}] = found
}

// complete reports whether each of these voters is known to reach every other one.
func (p *paths) complete(voters []replica.ID) bool {
	for _, a := range voters {
		for _, b := range voters {
			if found, known := p.found[[2]replica.ID{a, b}]; a != b && (!known || found.reason != "") {
				return false
			}
		}
	}
	return true
}

// pairs returns the pairs of these voters that do not reach each other.
func (p *paths) pairs(voters []replica.ID) (pairs [][2]replica.ID) {
	for i, a := range voters {
		for _, b := range voters[i+1:] {
			if p.found[[2]replica.ID{a, b}].isApart() || p.found[[2]replica.ID{b, a}].isApart() {
				pairs = append(pairs, [2]replica.ID{a, b})
			}
		}
	}
	return pairs
}

// describe says which of the two voters does not reach the other, and why.
func (p *paths) describe(a, b replica.ID, addrOf func(replica.ID) string) string {
	there, back := p.found[[2]replica.ID{a, b}].reason, p.found[[2]replica.ID{b, a}].reason
	switch {
	case there != "" && back != "":
		return fmt.Sprintf("%s and %s do not reach each other (%s)", addrOf(a), addrOf(b), there)
	case there != "":
		return fmt.Sprintf("%s does not reach %s (%s)", addrOf(a), addrOf(b), there)
	}
	return fmt.Sprintf("%s does not reach %s (%s)", addrOf(b), addrOf(a), back)
}

// endsOf returns the key of two addresses in paths.apart.
func endsOf(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

// remember records the addresses that were found apart, for the choice of members. They may belong to voters and to
// former voters.
func (p *paths) remember(now int, voters []replica.ID, addrOf func(replica.ID) string) {
	if p.apart == nil {
		p.apart = map[[2]string]int{}
	}
	apart := p.pairs(voters)
	for i, a := range voters {
		for _, b := range voters[i+1:] {
			pair, ends := [2]replica.ID{a, b}, endsOf(addrOf(a), addrOf(b))
			if slices.Contains(apart, pair) {
				p.apart[ends] = now
			} else if p.complete(pair[:]) {
				delete(p.apart, ends)
			}
		}
	}
}

// wereApart reports whether two addresses were found apart not long ago.
func (p *paths) wereApart(now int, a, b string) bool {
	at, found := p.apart[endsOf(a, b)]
	return found && now-at < apartTicks
}

// misses returns how many of addrs do not reach addr.
func (p *paths) misses(now int, addr string, addrs []string) (count int) {
	for _, other := range addrs {
		if p.wereApart(now, addr, other) {
			count++
		}
	}
	return count
}

// located is a member with its address.
type located struct {
	id   replica.ID
	addr string
}

// outcast returns a voter that another process should replace because it and another voter do not reach each other. It
// chooses the voter that misses most of voters and others. Of equal ones it prefers a voter other than first, then the
// latest. It returns 0 if all voters reach each other, or if each replacement in others is known not to reach a voter
// that stays. voters are the usable voters without the leader; others are the addresses of processes that may become
// voters.
func (p *paths) outcast(now int, voters []located, others []string, first replica.ID) replica.ID {
	var all []replica.ID
	addrs := slices.Clone(others)
	for _, v := range voters {
		all, addrs = append(all, v.id), append(addrs, v.addr)
	}
	var worst []located // of the voters in pairs
	pairs := p.pairs(all)
	for _, v := range slices.Backward(voters) {
		if slices.ContainsFunc(pairs, func(pair [2]replica.ID) bool { return slices.Contains(pair[:], v.id) }) {
			worst = append(worst, v)
		}
	}
	slices.SortStableFunc(worst, func(a, b located) int {
		return cmp.Or(
			cmp.Compare(p.misses(now, b.addr, addrs), p.misses(now, a.addr, addrs)),
			cmp.Compare(preference(b.id, first), preference(a.id, first)),
		)
	})
	for _, v := range worst {
		var stay []string
		for _, other := range voters {
			if other != v {
				stay = append(stay, other.addr)
			}
		}
		if slices.ContainsFunc(others, func(addr string) bool { return p.misses(now, addr, stay) == 0 }) {
			return v.id
		}
	}
	return 0
}
