package rounds

import (
	"math/rand/v2"
	"strings"
	"time"
)

// simBarrier describes the exit barrier of a run. It has a random generator of its own, so that the faults of a seed do
// not depend on it.
type simBarrier struct {
	rng        *rand.Rand
	bounded    bool // nodes leave the exit barrier after timeout
	closes     bool // somebody outside closes the run when its workers end
	timeout    time.Duration
	straggle   time.Duration // how much later than the others a node's workers may exit
	closeAfter time.Duration // how long a node that wants to leave waits for the leader's answer
}

func newSimBarrier(seed uint64) simBarrier {
	rng := rand.New(rand.NewPCG(seed, 5))
	part := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
	b := simBarrier{
		rng: rng, bounded: rng.IntN(2) == 0, timeout: part(300 * time.Millisecond), straggle: part(12 * time.Second),
		closeAfter: part(30 * time.Second),
	}
	if rng.IntN(2) == 0 {
		b.timeout *= 10
	}
	b.closes = rng.IntN(10) == 0
	if !b.bounded {
		b.straggle = 0
	}
	return b
}

// straggler draws how much later than the others the workers of a node exit.
func (b *simBarrier) straggler() time.Duration {
	if b.straggle == 0 || b.rng.IntN(3) > 0 {
		return 0
	}
	return time.Duration(b.rng.Int64N(int64(b.straggle) + 1))
}

// waitAtBarrier leaves the exit barrier when its time is over, as Handler.Succeed does.
func (p *agentProc) waitAtBarrier() {
	b, round := &p.w.barrier, p.m.entered
	waits := func() bool { return p.m.MayDepart() && p.m.entered == round && !p.leaving && !p.ending }
	if !b.bounded {
		return
	}
	p.loopTimer(p.w.now+b.timeout, func() {
		if !waits() {
			return
		}
		p.w.logf("%s wants to leave the exit barrier of round %d", p.node.name, round)
		p.m.Depart(p.node.local())
		p.pump()
		p.loopTimer(p.w.now+b.closeAfter, func() {
			if waits() {
				p.m.DepartUnconfirmed()
				p.pump()
			}
		})
	})
}

// leftBarrier reports whether an agent ends with success although it does not know how the job ends: it has left the
// exit barrier, or has lost the rendezvous there.
func (p *agentProc) leftBarrier() bool {
	return p.m != nil && p.m.over != nil && p.m.over.Outcome == nil && p.m.state == finished && !p.m.stopOrdered &&
		!p.leaving
}

// departureRecorded notes that the leader has recorded a departure.
func (c *checker) departureRecorded(d DepartedMember) {
	c.departures++
	c.departed = append(c.departed, d)
	if rd := c.current; rd == nil || rd.record.Round != d.Round || !rd.exited[d.Rank] {
		c.fail("departure", "rank %d has departed from round %d, and not all of its workers have exited with 0", d.Rank,
			d.Round)
	}
}

// left checks an agent that has left the exit barrier.
func (c *checker) left(p *agentProc) {
	if p.m.over.Others == "" || c.w.store.instance != p.instance {
		return
	}
	for _, d := range c.departed {
		if d.Round == p.m.entered && d.Node.Identity == p.node.node.Identity {
			return
		}
	}
	c.fail("departure", "%s has left round %d, but the leader has not recorded that", p.node.name, p.m.entered)
}

// successesWritten records which members have finished, according to a leader that has nothing left to write.
func (c *checker) successesWritten(l *Leader) {
	for r, m := range l.round.members {
		if l.state == running && m.status == done {
			c.succeeded[l.record.Members[r].ID] = l.record.Round
		}
	}
}

// successesKept checks that a later leader does not take the members of successesWritten for lost.
func (c *checker) successesKept(l *Leader) {
	for r, m := range l.round.members {
		id := l.record.Members[r].ID
		if round, finished := c.succeeded[id]; !finished || round != l.record.Round || m.participant != nil {
			continue
		}
		if c.kept++; m.status != done {
			c.fail("success", "a new leader forgets that %s of %s has finished round %d", id, c.owner[id].name, l.record.Round)
		}
	}
}

// checkSuccessStands checks that a node's success still counts once it has departed: nothing runs again without it.
func (c *checker) checkSuccessStands(what string) {
	if len(c.departed) > 0 {
		c.fail("departure", "%s after %s had departed from round %d", what, c.departed[0].Node.Host, c.departed[0].Round)
	}
}

// departureEnded reports whether the run has failed because of a departure.
func (c *checker) departureEnded(text string) bool {
	stands := strings.Contains(text, "had finished and left")
	if stands != (len(c.departed) > 0) {
		c.fail("departure", "the run has failed with %q after %d departures", text, len(c.departed))
	}
	return stands
}
