package coord

import (
	"slices"
	"time"
)

// addressPlan decides when to try which address of a store. It is pure: time is an argument.
//
// The addresses are tried in their order, each attemptStagger after the previous one, or as soon as an attempt fails.
// An address has at most one attempt in progress, and a pause after each attempt. A refusal that names an address
// brings that address's next attempt forward once. So members that name each other are tried at most twice as often.
type addressPlan struct {
	once  bool // try each address only once
	named int  // the number of addresses that refusals have added
	list  []*plannedAddress
}

// plannedAddress is the plan for one address and the results there.
type plannedAddress struct {
	addr    string
	due     time.Time // when the next attempt may begin
	reserve bool      // no other attempt's failure brings the first attempt forward
	trying  bool      // an attempt is in progress
	tried   bool      // an attempt has ended
	ended   time.Time // when the latest attempt ended
	forward bool      // a refusal has brought the next attempt, or the one in progress, forward
	settled bool      // no refusal may bring the next attempt forward: one has just brought the last attempt forward
	likely  time.Time // until this time the store is expected there, so pauses are short
	denial  error     // why the store will never be there, from the latest attempt; otherwise nil
	refused time.Time // since this time each attempt has found that nobody listens there; zero if not known
}

const (
	// attemptStagger is the time between the first attempts at two addresses. In most networks a healthy store answers
	// within this time, so that the other addresses get no connection.
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

// begin marks the attempts that are due as in progress and returns their addresses.
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

// failed records a failed attempt. The next attempt at that address begins after pause. A denial means that another
// attempt there cannot succeed; if every address is denied, the client ends with the first address's denial.
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

// bringForward handles a refusal that names addr as the store's address.
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

// expect notes that the store is probably at addr until the given time.
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

// advance moves the next attempt forward to the given time, unless it begins even earlier.
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

// refusedSince returns since when each attempt has found that nobody listens at its address. It is zero if an attempt
// had another result, or if an address was not tried.
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
