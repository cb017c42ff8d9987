package rounds

import (
	"fmt"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// TestFirstRoundInAFreshStore checks that the leader of a store that began without the sessions of an earlier one
// decides no round while workers of the earlier store may be alive.
func TestFirstRoundInAFreshStore(t *testing.T) {
	sec := time.Second
	at := func(d time.Duration) OptionalTime { return OptionalTime{d, true} }
	ready := func(earlier bool) Report {
		job := Job{
			Min: 1, Max: 2, LastCall: 2 * sec, JoinTimeout: 100 * sec, TTL: 15 * sec, Rejoin: 40 * sec, ResultTTL: sec,
		}
		return Report{Job: job, Phase: Ready, Earlier: earlier}
	}
	one, two := []Report{ready(false)}, []Report{ready(false), ready(false)}
	for _, tt := range []struct {
		name   string
		store  StoreHistory
		agents []Report // one joins each second
		want   time.Duration
	}{
		{"the store keeps its sessions", StoreHistory{}, one, 3 * sec},
		{"all nodes come to a store without a predecessor", StoreHistory{createdAt: at(0)}, two, 2 * sec},
		{"a node is missing: it may be cut off in an earlier store", StoreHistory{createdAt: at(0)}, one, 15 * sec},
		{"a node is missing in a store that is old enough", StoreHistory{createdAt: at(-60 * sec)}, one, 3 * sec},
		{"the predecessor was killed", StoreHistory{createdAt: at(0), predecessorEnd: at(0)}, two, 15 * sec},
		{"the predecessor ended 10 s before", StoreHistory{createdAt: at(0), predecessorEnd: at(-10 * sec)}, two, 5 * sec},
		{
			"an agent knows of a predecessor",
			StoreHistory{createdAt: at(0)},
			[]Report{ready(true), ready(false)},
			15 * sec,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := NewLeader(1, SavedState{StoreHistory: tt.store}, 0)
			for i, r := range tt.agents {
				now := time.Duration(i+1) * sec
				r.Node = Node{Host: fmt.Sprint("n", i), Identity: fmt.Sprint("n", i), Hint: -1, Nproc: 1}
				l.Observe(now, coord.SessionID(fmt.Sprint("s", i)), coord.Revision(i+1), &r)
				if i < len(tt.agents)-1 {
					l.Decide(now)
				}
			}
			for now := time.Duration(len(tt.agents)) * sec; ; {
				_, wake, timed := l.Decide(now)
				if l.hasRound {
					if now != tt.want {
						t.Errorf("the round is decided after %v, want %v", now, tt.want)
					}
					return
				}
				if !timed || wake > 60*sec {
					t.Fatalf("no round is decided: the leader waits until %v (%v)", wake, timed)
				}
				now = wake
			}
		})
	}
}

// TestAgentOfAnEarlierStoreComesLate checks that an agent that knows of an earlier store ends the running round, and
// that the next round waits for the sessions of the earlier store.
func TestAgentOfAnEarlierStoreComesLate(t *testing.T) {
	sec := time.Second
	job := Job{Min: 1, Max: 1, JoinTimeout: 100 * sec, TTL: 15 * sec, Rejoin: 40 * sec, ResultTTL: sec}
	l := NewLeader(1, SavedState{StoreHistory: StoreHistory{createdAt: OptionalTime{0, true}}}, 0)
	report := func(name string, r Report) {
		r.Job, r.Node = job, Node{Host: name, Identity: name, Hint: -1, Nproc: 1}
		l.Observe(2*sec, coord.SessionID(name), 1, &r)
		l.Decide(2 * sec)
	}
	report("a", Report{Phase: Ready})
	if !l.hasRound {
		t.Fatal("the round is not decided")
	}
	report("b", Report{Phase: Ready, Earlier: true})
	if l.state != halting {
		t.Fatal("the round goes on")
	}
	report("a", Report{Phase: Ready, Fence: l.fence()})
	if l.state != forming || !l.mustWaitForSessions(14*sec, true) || l.mustWaitForSessions(15*sec, true) {
		t.Errorf("state %d", l.state)
	}
}
