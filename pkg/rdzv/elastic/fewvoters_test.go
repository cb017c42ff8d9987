package elastic

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/group"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
)

func TestShortage(t *testing.T) {
	t.Parallel()
	one, three := []string{"a:1"}, []string{"a:1", "b:1", "c:1"}
	for _, tt := range []struct {
		name       string
		status     group.Status
		candidates int
		max        int
		want       shortage
	}{
		{"all is well", group.Status{Leading: true, Voters: three}, 3, 3, noShortage},
		{"a node that does not lead", group.Status{Voters: one}, 3, 3, noShortage},
		{"two nodes of three", group.Status{Leading: true, Voters: one}, 2, 3, shortOfNodes},
		{"two nodes of two", group.Status{Leading: true, Voters: one}, 2, 2, noShortage},
		{"three voters, of which two are apart", group.Status{Leading: true, Voters: three, Apart: three[1:]}, 3, 3, shortOfPaths},
		{"the same, and the leader is another one", group.Status{Voters: three}, 3, 3, noShortage},
		{"three nodes, of which two are not reached", group.Status{Leading: true, Voters: one}, 3, 3, shortOfReachable},
	} {
		if got := shortageOf(tt.status, tt.candidates, tt.max); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A shortage is said once it has lasted, and again only if the store had enough voters in between.
func TestVoterWatch(t *testing.T) {
	t.Parallel()
	const wait = 10 * time.Second
	type change struct {
		after  time.Duration
		now    shortage
		enough bool
	}
	few, nodes, none := shortOfReachable, shortOfNodes, noShortage
	for _, tt := range []struct {
		name    string
		changes []change
		want    []shortage // what is said
	}{
		{"it lasts", []change{{0, few, false}}, []shortage{few}},
		{"it does not last", []change{{0, few, false}, {wait - 1, none, true}}, nil},
		{"it is seen again and again", []change{{0, few, false}, {wait / 2, few, false}, {wait / 4, few, false}}, []shortage{few}},
		{
			"another leader in between",
			[]change{{0, few, false}, {2 * wait, none, false}, {wait, few, false}},
			[]shortage{few},
		},
		{
			"it was well in between",
			[]change{{0, few, false}, {2 * wait, none, true}, {wait, few, false}},
			[]shortage{few, few},
		},
		{
			"first too few nodes, then they are not reached",
			[]change{{0, nodes, false}, {2 * wait, few, false}, {2 * wait, nodes, false}},
			[]shortage{nodes, few},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var w voterWatch
				var said []shortage
				for _, c := range tt.changes {
					<-time.After(c.after)
					synctest.Wait()
					w.observe(c.now, c.enough, wait, func() {
						w.said[w.now], said = true, append(said, w.now)
					})
				}
				<-time.After(3 * wait)
				synctest.Wait()
				if diff := cmp.Diff(tt.want, said); diff != "" {
					t.Errorf("said (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestProblemOf(t *testing.T) {
	t.Parallel()
	silent := &coord.DialError{Obstacle: coord.ObstacleTimeout, Message: "nothing answers there"}
	unreachable := &coord.DialError{Message: "no connection is possible", Err: syscall.EHOSTUNREACH}
	refused := &coord.RefusedError{Addr: "d:1", Reason: coord.ReasonVersion, Message: "run the same version on all nodes"}
	const begin = "it cannot reach the nodes that offer to keep it too, at "
	many := make([]group.Unreached, 6)
	for i := range many {
		many[i] = group.Unreached{Addr: fmt.Sprintf("n%d:1", i), Err: silent}
	}
	for want, unreached := range map[string][]group.Unreached{
		"other nodes offer to keep it too, but do not yet": nil,
		begin + "b:1: nothing answers there":               {{Addr: "b:1", Err: silent}},
		begin + "b:1, c:1: nothing answers there":          {{Addr: "b:1", Err: silent}, {Addr: "c:1", Err: silent}},
		begin + "b:1 (nothing answers there), c:1 (there is no route to that machine, or it is down), d:1 (run the same " +
			"version on all nodes), e:1 (odd)": {
			{Addr: "b:1", Err: silent},
			{Addr: "c:1", Err: unreachable},
			{Addr: "d:1", Err: refused},
			{Addr: "e:1", Err: errors.New("odd")},
		},
		begin + "n0:1, n1:1, n2:1, n3:1, and 2 more: nothing answers there": many,
	} {
		if got := problemOf(unreached); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// The problem that the leading agent has logged is in the key that says where the store is, until the problem is over.
func TestProblemIsPublished(t *testing.T) {
	t.Parallel()
	a := newMemberAccess(t, testenv.FreePort(t))
	a.MaxNodes = 3
	openTogether(t, a)
	m := a.storeMember()
	for until := time.Now().Add(10 * time.Second); ; {
		m.update(func() {
			m.voters.stop()
			m.voters, m.problem, m.HasRound = voterWatch{}, "", true
			m.candidates = []group.Candidate{{Addr: m.Addr}, {Addr: "127.0.0.1:1"}, {Addr: "127.0.0.1:2"}}
		})
		before := m.addrs()
		m.sayFewVoters()
		now := m.addrs()
		if now.Problem != "" && !now.Equal(before) {
			break
		}
		if time.Now().After(until) { // the leader, which knows no candidates, may decide in between
			t.Fatalf("the problem is not published: %+v", now)
		}
	}
	m.log = zerolog.Nop()
	m.update(func() { m.Closing = true })
	if now := m.addrs(); now.Problem != "" {
		t.Errorf("the problem stays: %s", now.Problem)
	}
}

// A leader whose voters do not reach each other says so, and publishes which: also when others than before are
// concerned, and until all reach each other.
func TestPartedVotersArePublished(t *testing.T) {
	t.Parallel()
	const apart, others = "b:1 does not reach c:1 (why)", "b:1 and d:1 do not reach each other (why)"
	w := newMemberAccess(t, testenv.FreePort(t))
	w.MaxNodes = 3
	openTogether(t, w)
	m := w.storeMember()
	var said bytes.Buffer
	m.log = zerolog.New(&said)
	set := func(s group.Status) {
		m.update(func() { m.HasRound, m.Status = true, s })
	}
	status := group.Status{Leading: true, Voters: []string{m.Addr, "b:1", "c:1"}, Apart: []string{apart}}
	set(status)
	m.sayFewVoters()
	if now := m.addrs(); now.Problem != apart || !strings.Contains(said.String(), "may end the job") {
		t.Errorf("published %q, said %s", now.Problem, &said)
	}
	status.Apart = []string{others}
	set(status)
	if now := m.addrs(); now.Problem != others {
		t.Errorf("published %q", now.Problem)
	}
	status.Apart, status.SurvivesLoss = nil, true
	set(status)
	if now := m.addrs(); now.Problem != "" {
		t.Errorf("the problem stays: %s", now.Problem)
	}
}

func TestMemberPortsAdvice(t *testing.T) {
	t.Parallel()
	for want, ports := range map[string]machine.Ports{
		"open ports 29500-29510 between the nodes": {Low: 29500, High: 29510},
		"open the ports between the nodes, or give all nodes a range of open ones by --worker-store-port=LOW-HIGH": {Low: 29500, High: 29500},
	} {
		if got := memberPortsAdvice(ports); got != want {
			t.Errorf("%v: got %s, want %s", ports, got, want)
		}
	}
}
