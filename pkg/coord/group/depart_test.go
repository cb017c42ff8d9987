package group

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

// inLoop calls f in the loop of m.
func inLoop(m *Member, f func()) {
	done := make(chan bool)
	m.call(func() {
		defer close(done)
		f()
	})
	<-done
}

// pass lets virtual time pass.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // the bubble's time

// TestAllLeave makes all members leave at the same time. All but one succeed, and that one learns that it is the last.
func TestAllLeave(t *testing.T) {
	for size := range 5 {
		addrs := make([]string, size+1)
		for i := range addrs {
			addrs[i] = fmt.Sprintf("member%d:1", i)
		}
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t, Options{Voters: 3})
			for _, addr := range addrs {
				n.start(addr).SetCandidates(candidates(append([]string{"nobody:1"}, addrs...)...))
			}
			if err := n.members[addrs[0]].Found(); err != nil {
				t.Fatal(err)
			}
			pass(10 * time.Second)
			began := time.Now()
			results := make(chan error)
			for _, m := range n.members {
				go func() { results <- m.Leave(t.Context()) }()
			}
			last := 0
			for range addrs {
				switch err := <-results; {
				case errors.Is(err, errAlone):
					last++
				case err != nil:
					t.Error(err)
				}
			}
			if took := time.Since(began); last != 1 || took > 10*time.Second {
				t.Errorf("%d members: %d were the last, after %v", len(addrs), last, took)
			}
		})
	}
}

// TestLeftForGood checks that a process that has left joins no group again, even as a candidate, and that the others
// end their connections to it.
func TestLeftForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.found("member0:1", "member1:1", "member2:1")
		left := n.members["member1:1"]
		if err := left.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := left.Leave(t.Context()); err != nil {
			t.Errorf("leaves again: %v", err)
		}
		for range 300 {
			pass(100 * time.Millisecond)
			if left.Status().Member {
				t.Fatal("the process has joined the group again")
			}
		}
		n.members["member0:1"].SetCandidates(nil)
		n.members["member2:1"].SetCandidates(nil)
		pass(30 * time.Second)
		inLoop(n.members[n.leader()], func() {
			if n.members[n.leader()].peers["member1:1"] != nil {
				t.Error("the leader keeps the connection to a former member")
			}
		})
	})
}

// TestRollingReplacement replaces each member, twice, by a process at the same address as soon as the member has left.
// Each new process becomes a member at once: the pause before another request to join applies only to the former
// process.
func TestRollingReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := n.found("member0:1", "member1:1", "member2:1")
		c := n.client("client", time.Minute, addrs...)
		now := candidates(addrs...)
		for i := range 2 * len(addrs) {
			addr := addrs[i%len(addrs)]
			if err := n.members[addr].Leave(t.Context()); err != nil {
				t.Fatalf("%s cannot leave: %v", addr, err)
			}
			n.kill(addr)
			put(t, c, "key", strconv.Itoa(i))
			n.start(addr)
			now[i%len(addrs)].Process = strconv.Itoa(i)
			for _, m := range n.members {
				m.SetCandidates(slices.Clone(now))
			}
			began := time.Now()
			n.awaitVoters(3)
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("%s votes after %v", addr, took)
			}
			holds(t, c, map[string]string{"key": strconv.Itoa(i)})
		}
	})
}

// TestRemovedUnheard cuts a voter off and replaces every member that it knows. After the cut, the voter learns from a
// candidate that it was removed.
func TestRemovedUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := n.found("member0:1", "member1:1", "member2:1")
		lost := n.members["member2:1"]
		n.isolate("member2:1")
		var heal func()
		for i := range 3 {
			addrs = n.grow(addrs)
			heal = n.isolate("member2:1") // from the new member too
			for addr, m := range n.members {
				if addr != "member2:1" { // no member may ask member2 to join
					m.SetCandidates(candidates(slices.DeleteFunc(slices.Clone(addrs), func(a string) bool {
						return a == "member2:1"
					})...))
				}
			}
			n.awaitVoters(3)
			if i == 2 {
				break
			}
			replaced := fmt.Sprintf("member%d:1", i)
			if err := n.members[replaced].Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			n.kill(replaced)
		}
		heal()
		began := time.Now()
		n.await("the lost member to learn of its removal", func() (gone bool) {
			inLoop(lost, func() { gone = lost.replica == nil })
			return gone
		})
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it learns of its removal after %v", took)
		}
	})
}

// awaitVoters waits until a leader has the given number of voters, all of them alive.
func (n *network) awaitVoters(count int) {
	n.t.Helper()
	n.await(fmt.Sprintf("%d voters", count), func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, m := range n.members {
			s := m.Status()
			if s.Leading && len(s.Voters) == count && (count == 1 || s.SurvivesLoss) {
				return true
			}
		}
		return false
	})
}

// TestDeadCandidates loses a voter when all candidates are dead. The group falls back to one voter in time.
func TestDeadCandidates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := n.found("member0:1", "member1:1", "member2:1")
		for i := range 20 {
			addrs = append(addrs, fmt.Sprintf("dead%d:1", i))
		}
		for _, m := range n.members {
			m.SetCandidates(candidates(addrs...))
		}
		n.kill("member2:1")
		began := time.Now()
		n.awaitVoters(1)
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("one voter after %v", took)
		}
	})
}

// TestRestartedVoter kills a voter whose group has no other candidate. When the group has fallen back to one voter, the
// test starts the killed process again. Soon it votes again.
func TestRestartedVoter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := n.found("member0:1", "member1:1", "member2:1")
		n.kill("member2:1")
		n.awaitVoters(1)
		n.start("member2:1").SetCandidates(candidates(addrs...))
		began := time.Now()
		n.awaitVoters(3)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("three voters after %v", took)
		}
	})
}

// TestSlowLearner checks that a learner that stays behind is removed after a while, even if another member had asked it
// to join.
func TestSlowLearner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.found("member0:1")
		m := n.members["member0:1"]
		inLoop(m, func() {
			status := m.replica.Status()
			status.Learners = []replica.ID{9}
			status.Members = []replica.Member{{ID: 9, Applied: 1, Match: 1}}
			if v := m.view(status, 5); v.learners[0].silent || v.learners[0].current {
				t.Errorf("at first: %+v", v.learners)
			}
			m.manager.now += slowTicks
			if v := m.view(status, 5); !v.learners[0].silent {
				t.Errorf("later: %+v", v.learners)
			}
			if v := m.view(status, 1); v.learners[0].silent {
				t.Errorf("it has everything: %+v", v.learners)
			}
			m.replica.Tick()
		})
	})
}

// TestFoundAnew checks that a process that has left a group founds a new group, not the same one again.
func TestFoundAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.found("member0:1", "member1:1", "member2:1")
		m := n.members["member1:1"]
		if err := m.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.Found(); err != nil {
			t.Fatal(err)
		}
		var instances []string
		for _, m := range n.members {
			inLoop(m, func() { instances = append(instances, m.instance) })
		}
		slices.Sort(instances)
		if len(slices.Compact(instances)) != 2 {
			t.Errorf("the groups of the members: %q", instances)
		}
	})
}
