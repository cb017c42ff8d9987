package coord

import (
	"slices"
	"time"
)

// addressPlan decides when which of a store's addresses is tried. It is pure: time is an argument.
//
// The addresses are tried in their order, each attemptStagger after the one before, or as soon as an attempt fails. An
// address has at most one attempt in progress, and after it a pause. A refusal that names an address brings its next
// attempt forward once, so that members that name each other are tried at most twice as often.
type addressPlan struct {
	once  bool // each address is tried once only
	named int  // how many addresses refusals have added
	list  []*plannedAddress
}

// plannedAddress is what an addressPlan knows about an address.
type plannedAddress struct {
	addr    string
	due     time.Time // when the next attempt may begin
	reserve bool      // the first attempt does not begin earlier, whatever the others find
	trying  bool      // an attempt is in progress
	tried   bool      // an attempt has ended
	ended   time.Time // when the latest attempt ended
	forward bool      // a refusal has brought the next attempt, or the one in progress, forward
	settled bool      // no refusal brings the next attempt forward: it has just done so
	likely  time.Time // until when the store is expected there, so that pauses are short
	denial  error     // why the store will never be there, as the latest attempt has found; nil otherwise
	refused time.Time // since when each attempt has found that nobody listens there; zero if that is not known
}

const (
	// attemptStagger is the time between the first attempts at two addresses. A healthy store answers within it in most
	// networks, so that the others get no connection.
	attemptStagger = 30 * time.Millisecond
	// maxNamed is how many addresses refusals can add.
	maxNamed = 8
)

// add adds an address that is first tried at due. It does nothing if the plan has the address.
func (p *addressPlan) add(addr string, due time.Time) {
	if p.find(addr) == nil {
		p.list = append(p.list, &plannedAddress{addr: addr, due: due})
	}
}

// addAll adds addresses that are tried one after the other from now on.
func (p *addressPlan) addAll(addrs []string, now time.Time) {
	for i, addr := range addrs {
		p.add(addr, now.Add(time.Duration(i)*attemptStagger))
	}
}

func (p *addressPlan) find(addr string) *plannedAddress {
	if i := slices.IndexFunc(p.list, func(a *plannedAddress) bool { return a.addr == addr }); i >= 0 {
		return p.list[i]
	}
	return nil
}

// begin returns the addresses at which an attempt begins now.
func (p *addressPlan) begin(now time.Time) (addrs []string) {
	for _, a := range p.list {
		if p.waits(a) && !a.due.After(now) {
			a.trying = true
			addrs = append(addrs, a.addr)
		}
	}
	return addrs
}

// waits reports whether another attempt at a will begin.
func (p *addressPlan) waits(a *plannedAddress) bool { return !a.trying && (!p.once || !a.tried) }

// next returns when the next attempt begins; ok is false if none will.
func (p *addressPlan) next() (at time.Time, ok bool) {
	for _, a := range p.list {
		if p.waits(a) && (!ok || a.due.Before(at)) {
			at, ok = a.due, true
		}
	}
	return at, ok
}

// failed records that an attempt has failed. The next one at that address begins after pause. denial is not nil if
// another attempt there cannot succeed; it is then the client's error, should no other address remain.
func (p *addressPlan) failed(addr string, err, denial error, now time.Time, pause time.Duration) {
	a := p.find(addr)
	a.trying, a.tried, a.ended, a.due = false, true, now, now.Add(pause)
	a.forward, a.settled = false, a.forward
	if now.Before(a.likely) {
		a.advance(now.Add(leastDelay))
	}
	a.denial, a.refused = denial, RefusedSince(a.refused, err)
	for _, other := range p.list {
		if !other.tried && !other.trying && !other.reserve {
			other.due = now
			break
		}
	}
	if named := servedAt(err); named != "" && named != addr {
		p.bringForward(named, now)
	}
}

// bringForward handles a refusal that names addr.
func (p *addressPlan) bringForward(addr string, now time.Time) {
	a := p.find(addr)
	switch {
	case a == nil && p.named < maxNamed:
		p.named++
		p.add(addr, now)
	case a == nil || a.trying:
	case !a.tried && !a.reserve:
		a.due = now
	case a.tried && !a.forward && !a.settled:
		a.forward = true
		a.advance(a.ended.Add(leastDelay))
	}
}

// expect notes that the store is probably at addr, until then.
func (p *addressPlan) expect(addr string, now, until time.Time) {
	if addr == "" || !now.Before(until) {
		return
	}
	p.add(addr, now)
	a := p.find(addr)
	a.likely = until
	if soon := a.ended.Add(leastDelay); soon.After(now) {
		a.advance(soon)
	} else {
		a.advance(now)
	}
}

// advance makes the next attempt begin at a time, unless it begins earlier.
func (a *plannedAddress) advance(to time.Time) {
	if to.Before(a.due) {
		a.due = to
	}
}

// denied returns the first address's denial if the latest attempt at each address was denied, or nil.
func (p *addressPlan) denied() error {
	for _, a := range p.list {
		if a.denial == nil {
			return nil
		}
	}
	return p.list[0].denial
}

// refusedSince returns since when each attempt has found that nobody listens at its address; zero if one has found
// something else, or if an address has not been tried.
func (p *addressPlan) refusedSince() (since time.Time) {
	for _, a := range p.list {
		if a.refused.IsZero() {
			return time.Time{}
		}
		if a.refused.After(since) {
			since = a.refused
		}
	}
	return since
}
