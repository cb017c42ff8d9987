package elastic

import (
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/coord/group"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/founding"
)

// An agent at an endpoint that follows another group stays with it, and passes its news on to the leader of a group
// that has to give way.
func TestFollower(t *testing.T) {
	t.Parallel()
	a, b := newMemberAccess(t, testenv.FreePort(t)), newMemberAccess(t, testenv.FreePort(t))
	a.TTL = time.Hour
	openTogether(t, a)
	openTogether(t, b)
	follower, leader := a.storeMember(), b.storeMember()
	known := group.Announcement{Addr: "127.0.0.1:1", Instance: "known", Label: `{"has_round":true,"index":3}`}
	other := group.Announcement{Addr: leader.Addr, Instance: b.client.InstanceID(), Label: `{"index":0}`}
	follows := func(m *storeMember) string {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.Followed.Addr
	}
	hears := func(what string, other group.Announcement, want string) {
		t.Helper()
		if follower.consider(t.Context(), other); follows(follower) != want {
			t.Errorf("%s: the agent follows %s, want %s", what, follows(follower), want)
		}
	}
	hears("at first", known, known.Addr)
	if follower.member.Status().Member {
		t.Fatal("the agent has a group of its own beside the one that it follows")
	}

	follower.update(func() { follower.FirstHand = time.Now().Add(-founding.MaxRelayAge) })
	if v, _ := follower.Judge(time.Now(), other, founding.Standing{}, ""); v != founding.Stays {
		t.Errorf("what is known from long ago: %v, want that it is not passed on", v)
	}
	relayed := known
	relayed.Relayed = true
	hears("news at second hand", relayed, known.Addr)
	if time.Since(follower.FirstHand) < founding.MaxRelayAge {
		t.Error("news at second hand count as new")
	}

	hears("the leader again", known, known.Addr)
	hears("a group without a round", other, known.Addr)
	testenv.Await(t, "the other leader to hear of it", time.Minute, func() bool { return follows(leader) == known.Addr })
	if leader.member.Status().Member {
		t.Error("the group that has to give way goes on")
	}

	rival := group.Announcement{Addr: "127.0.0.1:2", Instance: "rival", Label: `{"has_round":true,"index":0}`}
	hears("another group with a round", rival, known.Addr)
	follower.update(func() { follower.HeardOf = time.Now().Add(-a.TTL) })
	a.Forget() // the agent's session
	hears("a group, when the former one is silent", rival, rival.Addr)
}
