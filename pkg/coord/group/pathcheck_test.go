package group

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

// during calls check every 10 ms of the bubble's time.
func during(d time.Duration, check func()) {
	for end := time.Now().Add(d); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		check()
	}
}

// TestVotersApart founds a group of three in which two members do not reach each other. They vote, because no other
// process can. But the leader does not report that the group survives its loss, and says why.
func TestVotersApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.part([2]string{"member1:1", "member2:1"})
		leader := n.begin("member0:1", "member1:1", "member2:1")
		n.await("what is wrong", func() bool { return len(leader.Status().Apart) > 0 })
		want := []string{"member1:1 and member2:1 do not reach each other (" + errCut.Error() + ")"}
		during(time.Minute, func() {
			if s := leader.Status(); s.SurvivesLoss || len(s.Voters) != 3 || !slices.Equal(s.Apart, want) {
				t.Fatalf("status %+v", s)
			}
		})
	})
}

// TestApartIsReplaced starts a fourth member, which replaces a voter that does not reach another one. Then the group
// survives the loss of the leader.
func TestApartIsReplaced(t *testing.T) {
	for name, tt := range map[string]struct {
		first string
		want  []string
	}{
		"the later one":               {"", []string{"member0:1", "member1:1", "member3:1"}},
		"not the one at the endpoint": {"member2:1", []string{"member0:1", "member2:1", "member3:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, Options{First: tt.first})
				n.part([2]string{"member1:1", "member2:1"})
				addrs := []string{"member0:1", "member1:1", "member2:1", "member3:1"}
				leader := n.begin(addrs...)
				n.await("a group that survives a loss", func() bool { return leader.Status().SurvivesLoss })
				if s := leader.Status(); !cmp.Equal(s.Voters, tt.want) || len(s.Apart) > 0 {
					t.Errorf("status %+v", s)
				}
				c := n.client("client", time.Minute, addrs...)
				put(t, c, "key", "v")
				n.kill("member0:1")
				n.leader()
				put(t, c, "another", "v")
				holds(t, c, map[string]string{"key": "v", "another": "v"})
			})
		})
	}
}

// TestAllApart founds a group of four in which only the leader reaches the others. The leader tries them all and then
// keeps three members.
func TestAllApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.part([2]string{"member1:1", "member2:1"}, [2]string{"member1:1", "member3:1"}, [2]string{"member2:1", "member3:1"})
		leader := n.begin("member0:1", "member1:1", "member2:1", "member3:1")
		n.await("three voters", func() bool { return len(leader.Status().Voters) == 3 })
		changes, voters := 0, leader.Status().Voters
		during(5*time.Minute, func() {
			s := leader.Status()
			if s.SurvivesLoss || len(s.Voters) != 3 {
				t.Fatalf("status %+v", s)
			}
			if !slices.Equal(s.Voters, voters) {
				changes, voters = changes+1, s.Voters
			}
		})
		if changes != 2 {
			t.Errorf("the voters changed %d times", changes)
		}
	})
}

// TestPathIsCut cuts the path between two of three voters that have reached each other, and heals it.
func TestPathIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.found("member0:1", "member1:1", "member2:1")
		leader := n.members["member0:1"]
		heal := n.part([2]string{"member1:1", "member2:1"})
		n.await("the cut to be noticed", func() bool { s := leader.Status(); return !s.SurvivesLoss && len(s.Apart) > 0 })
		heal()
		n.await("the path to be noticed", func() bool { s := leader.Status(); return s.SurvivesLoss && len(s.Apart) == 0 })
	})
}

// TestPathToLost kills a voter of a group whose voters reach each other. No status reports a missing path to it, and
// the other voters stay.
func TestPathToLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.found("member0:1", "member1:1", "member2:1")
		leader := n.members["member0:1"]
		checked := make(chan bool)
		leader.call(func() { // the next check finds the lost voter
			leader.manager.paths.latest.began = leader.manager.now - recheckTicks + 2
			close(checked)
		})
		<-checked
		n.kill("member2:1")
		n.grow([]string{"member0:1", "member1:1", "member2:1"})
		n.await("another voter", func() bool {
			s := leader.Status()
			if len(s.Apart) > 0 || !slices.Contains(s.Voters, "member1:1") {
				t.Fatalf("status %+v", s)
			}
			return s.SurvivesLoss && slices.Contains(s.Voters, "member3:1")
		})
	})
}

// TestRequestsForPaths sends requests to a member that it must not answer, one that it answers, and a frame of a kind
// that it does not know. The group goes on.
func TestRequestsForPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.found("member0:1", "member1:1", "member2:1")
		m := n.members["member0:1"]
		var hello, foreign []byte
		done := make(chan bool)
		m.call(func() {
			hello, foreign = m.hello(), frame{kind: frameHello, addr: m.opts.Addr, instance: "another"}.encode()
			close(done)
		})
		<-done
		ask := func(id replica.ID, addrs ...string) []byte {
			return frame{kind: frameReach, id: id, texts: addrs}.encode()
		}
		for name, tt := range map[string]struct {
			hello, request []byte
			want           *frame
		}{
			"a question":               {hello, ask(2, "member2:1", "nobody:1"), &frame{kind: frameMissed, texts: []string{"nobody:1", "nobody listens there"}}},
			"for another member":       {hello, ask(3, "member2:1"), nil},
			"of another group":         {foreign, ask(2, "member2:1"), nil},
			"too many addresses":       {hello, ask(2, strings.Split(strings.Repeat("a:1,", maxTargets), ",")...), nil},
			"a kind that nobody knows": {hello, frame{kind: 99}.encode(), nil},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			nc, err := m.dial(ctx, "member1:1")
			if err != nil {
				t.Fatal(err)
			}
			if err := write(nc, slices.Concat(tt.hello, tt.request), func(int) {}); err != nil {
				t.Fatal(err)
			}
			got, err := readFrame(nc, maxHello)
			switch {
			case tt.want == nil && !errors.Is(err, io.EOF):
				t.Errorf("%s: got %+v, %v", name, got, err)
			case tt.want != nil && (err != nil || !cmp.Equal(*tt.want, got, cmp.AllowUnexported(frame{}))):
				t.Errorf("%s: got %+v, %v", name, got, err)
			}
			nc.Close()
			cancel()
		}
		c := n.client("client", time.Minute, "member0:1")
		put(t, c, "key", "v")
		closeClient(t, c)
		if !m.Status().SurvivesLoss {
			t.Error("the group does not survive a loss any more")
		}
	})
}

// TestLateAnswer gives the leader an answer to a check that another one has followed.
func TestLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, Options{})
		n.found("member0:1", "member1:1", "member2:1")
		m := n.members["member0:1"]
		done := make(chan bool)
		m.call(func() {
			p := &m.manager.paths
			former := &pathCheck{voters: p.latest.voters}
			m.notePaths(former, 2, []replica.ID{3}, map[string]string{"member2:1": noPath})
			close(done)
		})
		<-done
		if s := m.Status(); !s.SurvivesLoss {
			t.Errorf("status %+v", s)
		}
	})
}
