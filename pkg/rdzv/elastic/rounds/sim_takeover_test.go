package rounds

import (
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord/replica"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/founding"
)

// simEstate is what a guard knows of an agent that has died and had kept the store alone.
type simEstate struct {
	part     *simPart // the dead agent's
	stored   replica.Acknowledged
	heirs    []string
	renamed  bool          // the record of the heirs is in place for the next agent on the machine
	until    time.Duration // when the guard gives up
	answered bool          // by the heir that was asked last
	took     bool
}

// estate returns what the guard knows of this agent, which dies now; nil if nobody can take over from it.
func (p *agentProc) estate() *simEstate {
	t := p.part
	if t == nil || t.r == nil || t.stored == (replica.Acknowledged{}) || !t.Alone || len(t.Known) == 0 {
		return nil
	}
	return &simEstate{part: t, stored: t.stored, heirs: slices.Clone(t.Known)}
}

// handOver asks the heirs, one after the other, until one has taken over or may have, as elastic.Heirs. It gives up
// after founding.HandOverTime.
func (e *simEstate) handOver(then func()) {
	e.until = e.part.w.now + founding.HandOverTime
	e.ask(0, then)
}

func (e *simEstate) ask(i int, then func()) {
	t, w := e.part, e.part.w
	place := &t.p.node.place
	if w.now > e.until {
		then()
		return
	}
	addr := e.heirs[i%len(e.heirs)]
	heir := w.partAt(addr)
	if heir == nil || t.p.node.cut[up] || heir.p.node.cut[down] || w.now < t.p.node.refusing {
		w.after(100*time.Millisecond, func() { e.ask(i+1, then) }) // no connection, so nothing was sent
		return
	}
	if !e.renamed && t.AtEndpoint() && !w.plant.noHeirFile {
		if place.heirs == nil {
			w.logf("the guard of %s does not hand over: another agent has come", t.p.node.name)
			then()
			return
		}
		place.group, place.heirs = place.heirs, nil
	}
	e.renamed, e.answered = true, false
	t.frame(addr, func(to *simPart) {
		took := to.takeOver(t.group, e.stored)
		w.after(w.delay(), func() {
			if !to.p.node.cut[up] && !t.p.node.cut[down] {
				e.answered, e.took = true, took
			}
		})
	})
	w.after(w.between(50*time.Millisecond, founding.HandOverAttempt), func() {
		if !e.answered || e.took {
			then()
			return
		}
		e.ask(i+1, then)
	})
}

// takeOver is Member.takeOver, with storeMember.mayTakeOver.
func (t *simPart) takeOver(g *simGroup, stored replica.Acknowledged) bool {
	now, inSession := t.p.node.local(), t.p.session != "" && t.p.instance == g.instance
	may := inSession && t.MayTakeOver(now-t.p.m.lastProof) && now-t.heardAt <= founding.TakeOverTime(t.TTL)
	if t.r == nil || t.group != g || t.leaving || !may && !t.w.plant.takesLate {
		return false
	}
	if err := t.r.TakeOver(stored); err != nil {
		t.w.logf("%s does not take over: %v", t.Addr, err)
		return false
	}
	t.w.logf("%s takes over group %d", t.Addr, g.instance)
	t.w.check.groups.takeovers++
	return true
}
