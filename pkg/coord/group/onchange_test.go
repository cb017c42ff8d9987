package group

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// changes records the arguments of Options.OnChange.
type changes struct {
	mu  sync.Mutex
	all []Status
}

func (c *changes) add(s Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, s)
}

// list returns all changes so far.
func (c *changes) list() []Status {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clip(c.all)
}

// startRecorded starts a member at addr and records its changes.
func (n *network) startRecorded(addr string) *changes {
	n.t.Helper()
	c := new(changes)
	n.opts.OnChange = c.add
	n.start(addr)
	n.opts.OnChange = nil
	return c
}

// TestOnChange checks each change of a group with one member.
func TestOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		c := n.startRecorded("member0:1")
		m := n.members["member0:1"]
		if got := c.list(); len(got) > 0 {
			t.Errorf("changes of a process in no group: %+v", got)
		}
		if err := m.Found(); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		m.Yield(Announcement{})
		m.Yield(Announcement{})
		pass(time.Minute)
		leads := Status{Member: true, Leading: true, Leader: "member0:1", Voters: []string{"member0:1"}}
		if diff := cmp.Diff([]Status{leads, {}}, c.list()); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
	})
}

// TestOnChangeOfGroup checks OnChange while members join, are killed and leave. Each call has a new state, and the
// latest state is that of Status. While nothing changes, OnChange is not called.
func TestOnChangeOfGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		addrs := []string{"member0:1", "member1:1", "member2:1", "member3:1"}
		recorded := map[string]*changes{}
		for _, addr := range addrs {
			recorded[addr] = n.startRecorded(addr)
			n.members[addr].SetCandidates(candidates(addrs...))
		}
		if err := n.members["member0:1"].Found(); err != nil {
			t.Fatal(err)
		}
		check := func(after string) {
			t.Helper()
			pass(30 * time.Second)
			before := map[string]int{}
			for addr, m := range n.members {
				got := recorded[addr].list()
				before[addr] = len(got)
				latest := Status{}
				for i, s := range got {
					if i > 0 && cmp.Equal(s, latest) || i == 0 && !s.Member {
						t.Errorf("after %s: call %d of %s has no change: %+v", after, i, addr, s)
					}
					latest = s
				}
				if diff := cmp.Diff(m.Status(), latest); diff != "" {
					t.Errorf("after %s: state of %s (-Status +OnChange):\n%s", after, addr, diff)
				}
			}
			pass(30 * time.Second)
			for addr := range n.members {
				if got := recorded[addr].list()[before[addr]:]; len(got) > 0 {
					t.Errorf("%s: %s has changes while nothing changes: %+v", after, addr, got)
				}
			}
		}
		check("three have joined")
		n.transfer("member0:1", "member1:1")
		check("another one leads")
		n.kill(n.leader())
		check("the leader was killed")
		if err := n.members[n.leader()].Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		check("the leader has left")
	})
}
