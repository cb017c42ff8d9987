package elastic

import (
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// planted are bugs on purpose, each at a seam between a machine and the world; the zero value has none.
type planted struct {
	guards      func([]coord.Guard) []coord.Guard            // those of a leader's commit
	report      func(l *leader, r *Report) *Report           // as the leader sees it
	decide      func(l *leader, now time.Duration)           // before the leader decides
	batch       func(w *world, x *simWatch, b simBatch) bool // true: it is lost, and nobody hears of it
	member      func(m *member, now time.Duration)           // before the member does what time asks for
	answer      func(m *member, a Answer)                    // before the member is shown an answer
	noBound     bool                                         // stops are not bounded
	slowWatch   bool                                         // what a watch tells may come long after a keep-alive's answer
	breakEnds   bool                                         // a session ends with its connection
	noProbe     bool                                         // nobody finds out that an agent hangs
	noLate      bool                                         // workers are started though the guard may be killing
	noOver      bool                                         // workers are started for a round that is over
	earlyNotice bool                                         // a guard says that no worker is left before that is so
	deadline    func(m *member) optionalTime                 // by which the guard kills
	instance    func(i storeHistory) storeHistory            // as the leader sees its store
	overtaken   bool                                         // a commit that was given up may be done after later ones
}

// TestSimulationFindsPlantedBugs breaks what the design's rules protect, one at a time: the suite must notice each of
// them.
func TestSimulationFindsPlantedBugs(t *testing.T) {
	for _, bug := range []struct {
		name  string
		plant planted
	}{
		{"a leader's writes are not guarded", planted{
			guards: func([]coord.Guard) []coord.Guard { return nil },
		}},
		{"a round is decided before the workers of the last one have stopped", planted{
			decide: func(l *leader, now time.Duration) {
				for r := range l.round.members {
					if p := &l.round.members[r]; l.state == halting && p.status == active && p.participant != nil {
						stopped := p.participant.report
						stopped.Phase, stopped.Fence = Ready, l.fence()
						l.handleReport(now, p.participant, stopped)
					}
				}
			},
		}},
		{"an agent that the store does not answer goes on", planted{
			member: func(m *member, now time.Duration) { m.lastProof = now },
		}},
		{"the verdict does not wait for all nodes", planted{
			decide: func(l *leader, now time.Duration) {
				if l.state == halting && l.round.failures.anyFailed {
					l.judgeRound(now)
				}
			},
		}},
		{"an agent starts a round again that it has left", planted{
			answer: func(m *member, a Answer) {
				if a.Kind == Run && m.state == ready {
					m.fence, m.latest = Fence{}, Answer{}
				}
			},
		}},
		{"a watch has a gap and says nothing", planted{
			batch: func(w *world, _ *simWatch, b simBatch) bool { return !b.resync && w.chance(0.02) },
		}},
		{"workers that succeeded stay done when others fail", planted{
			decide: func(l *leader, _ time.Duration) {
				for r := range l.round.members {
					if p := &l.round.members[r]; l.state == halting && p.status == active && p.participant != nil && p.participant.report.Phase == Done {
						l.round.setStatus(p, stopped)
					}
				}
			},
		}},
		{"a victim is blamed like a cause", planted{
			report: func(_ *leader, r *Report) *Report {
				if r != nil && r.Failure != nil {
					same := *r
					f := *r.Failure
					f.Grade, same.Failure = 1, &f
					return &same
				}
				return r
			},
		}},
		{"failures after the end for newcomers are charged", planted{
			decide: func(l *leader, _ time.Duration) { l.round.unchargedSince = optionalTime{} },
		}},
		{"no node is quarantined for a worker store that is not reached", planted{
			decide: func(l *leader, _ time.Duration) {
				l.budget.faults, l.budget.quarantinedUntil, l.unreachedRounds = nil, nil, 0
			},
		}},
		{"nodes do not tell that rank 0 is not reached", planted{
			report: func(_ *leader, r *Report) *Report {
				if r == nil {
					return nil
				}
				same := *r
				same.Unreached = nil
				return &same
			},
		}},
		{"the first node to report is quarantined, whichever is at fault", planted{
			decide: func(l *leader, now time.Duration) {
				for r := range l.round.members {
					if p := &l.round.members[r]; l.state == running && p.unreachedSince.set && p.status == active {
						l.quarantineMember(now, r, "so")
						l.requestStop("%s is quarantined", l.hostOf(r))
						return
					}
				}
			},
		}},
		{"quarantined nodes are never used", planted{
			decide: func(l *leader, _ time.Duration) {
				for _, s := range l.participants.byID {
					if s.counted.quarantined {
						l.participants.count(s, false, false, s.counted.matching)
					}
				}
			},
		}},
		{"everybody is new", planted{
			decide: func(l *leader, _ time.Duration) {
				for r := range l.record.Members {
					l.record.Members[r].New = true
				}
			},
		}},
		{"an agent takes its time to stop workers, whatever it was told", planted{noBound: true}},
		{"a keep-alive is answered before what was to be told", planted{slowWatch: true}},
		{"a commit that was given up is done after a later one", planted{overtaken: true}},
		{"a session ends when its connection breaks", planted{breakEnds: true}},
		{"a guard says that no worker is left before that is so", planted{earlyNotice: true}},
		{"a new store decides at once although it had a predecessor", planted{
			instance: func(storeHistory) storeHistory { return storeHistory{} },
		}},
		{"agents do not tell that they know of an earlier store", planted{
			report: func(_ *leader, r *Report) *Report {
				if r == nil {
					return nil
				}
				same := *r
				same.Earlier = false
				return &same
			},
		}},
		{"workers are started for a round that is over", planted{noOver: true}},
		{"workers are started by an agent that is late, and its guard may have killed those before", planted{noLate: true}},
		{"a guard knows of the lease alone, not of when the agent was told to be done", planted{
			deadline: func(m *member) optionalTime {
				leased := *m
				leased.killAt = optionalTime{}
				return leased.deadline()
			},
		}},
		{"nobody finds out that an agent hangs", planted{noProbe: true}},
	} {
		t.Run(bug.name, func(t *testing.T) {
			bad, _ := simulateSeeds(1000, bug.plant)
			if bad == nil {
				t.Fatal("1,000 seeds have not found it")
			}
			t.Logf("%q (%s) after %d seeds", bad.check.broken.invariant, bad.check.broken.text, bad.seed+1)
		})
	}
}
