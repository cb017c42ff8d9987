package replica

import (
	"errors"
	"slices"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

func TestChangeErrors(t *testing.T) {
	g := newGroupOf(t, 3, Config{})
	r := g.leader()
	for name, tt := range map[string]struct{ voters, learners []ID }{
		"no voter":           {nil, []ID{1}},
		"twice":              {[]ID{1, 2, 2}, nil},
		"voter and learner":  {[]ID{1, 2}, []ID{2}},
		"invalid":            {[]ID{0}, nil},
		"too many":           {make([]ID, maxMembers+1), nil},
		"not a new high one": {[]ID{1, 2, 3}, []ID{4, 3}},
	} {
		if _, err := r.Change(tt.voters, tt.learners); !errors.Is(err, ErrMembers) {
			t.Errorf("%s: %v", name, err)
		}
	}
	same, err := r.Change([]ID{3, 2, 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	g.settled(r, same, nil)
	if _, err := r.Change([]ID{1}, nil); err != nil {
		t.Fatal(err)
	}
	if !r.Status().Changing {
		t.Error("a change that is proposed is not reported")
	}
	if _, err := r.Change([]ID{1}, nil); !errors.Is(err, ErrBusy) {
		t.Errorf("two changes at once: %v", err)
	}
	if err := r.TransferTo(2); !errors.Is(err, ErrBusy) {
		t.Errorf("a transfer during a change: %v", err)
	}
}

// The id of a former member is never used again, on any replica.
func TestIDsAreNotReused(t *testing.T) {
	g := newGroupOf(t, 3, Config{})
	g.add(Config{ID: 9})
	g.change([]ID{1, 2, 9}, nil)
	g.change([]ID{1, 2, 9}, nil)
	check := func() {
		t.Helper()
		for _, id := range []ID{3, 8} {
			if _, err := g.leader().Change([]ID{1, 2, id}, nil); !errors.Is(err, ErrMembers) {
				t.Errorf("id %d: %v", id, err)
			}
			if _, err := g.leader().Change([]ID{1, 2, 9}, []ID{id}); !errors.Is(err, ErrMembers) {
				t.Errorf("learner %d: %v", id, err)
			}
		}
	}
	check()
	if err := g.leader().TransferTo(9); err != nil { // replica 9 has got the highest id from a snapshot
		t.Fatal(err)
	}
	g.run()
	check()
}

// During a change, decisions need a majority of the old voters and a majority of the new voters.
func TestChangeIsJoint(t *testing.T) {
	for name, missing := range map[string][]ID{"old": {2, 3}, "new": {4, 5}} {
		t.Run(name, func(t *testing.T) {
			g := newGroupOf(t, 3, Config{})
			g.add(Config{ID: 4})
			g.add(Config{ID: 5})
			r := g.leader()
			g.drop = func(m Message) bool {
				return slices.Contains(missing, m.From()) && r.isJoint()
			}
			change, err := r.Change([]ID{1, 4, 5}, nil)
			if err != nil {
				t.Fatal(err)
			}
			g.tick(3)
			if s := r.Status(); len(s.Outgoing) != 3 || s.SurvivesLoss() {
				t.Fatalf("%+v", s)
			}
			write, confirm := g.write(r, "k", "v"), g.confirm(r)
			g.tick(3)
			g.pending(r, change)
			g.pending(r, write)
			g.pending(r, confirm)
			g.heal()
			g.tick(6)
			g.settled(r, change, nil)
			g.settled(r, write, nil)
			g.settled(r, confirm, nil)
			if s := r.Status(); !slices.Equal(s.Voters, []ID{1, 4, 5}) || len(s.Outgoing) > 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A removed leader answers no request after the change, even while raft continues to lead until the others know of the
// change.
func TestLeaderIsRemoved(t *testing.T) {
	for name, learners := range map[string][]ID{"removed": nil, "made a learner": {1}} {
		t.Run(name, func(t *testing.T) {
			g := newGroupOf(t, 3, Config{})
			g.add(Config{ID: 4})
			r := g.leader()
			change, err := r.Change([]ID{2, 3, 4}, learners)
			if err != nil {
				t.Fatal(err)
			}
			g.drop = func(m Message) bool { return m.raft.GetType() == pb.MsgHeartbeatResp }
			confirm := g.confirm(r)
			g.untilRemoved(r)
			if _, err := r.Confirm(); !errors.Is(err, ErrNotLeading) {
				t.Errorf("a confirm: %v", err)
			}
			if _, err := r.Write(nil); !errors.Is(err, ErrNotLeading) {
				t.Errorf("a write: %v", err)
			}
			g.heal()
			g.settled(r, change, nil)
			g.settled(r, confirm, ErrNotLeading)
			if g.roles[1].Leading {
				t.Errorf("%+v", g.roles[1])
			}
			g.tick(6)
			if r.leader || r.dismissal != nil {
				t.Error("raft leads on")
			}
			if !g.roles[2].Leading {
				t.Error("the others wait for an election time-out")
			}
			g.elect(2)
		})
	}
}

// untilRemoved delivers messages until the leader has applied a change that removes it, and the others have not.
func (g *group) untilRemoved(r *Replica) {
	g.t.Helper()
	for range 100 {
		if !r.votes(r.id) {
			break
		}
		g.round()
	}
	if r.votes(r.id) || !r.leader {
		g.t.Fatalf("votes %v, raft leads %v", r.votes(r.id), r.leader)
	}
}

// For raft, a removed leader is a voter until the voters have applied the change. Otherwise the others could depend on
// a voter that is gone. The leader does not wait for silent voters, but for a majority.
func TestDismissal(t *testing.T) {
	start := func(t *testing.T) (*group, *Replica) {
		t.Helper()
		g := newGroupOf(t, 3, Config{})
		g.add(Config{ID: 4})
		r := g.leader()
		if _, err := r.Change([]ID{2, 3, 4}, nil); err != nil {
			t.Fatal(err)
		}
		return g, r
	}
	t.Run("one lags", func(t *testing.T) {
		g, r := start(t)
		g.drop = func(m Message) bool { return m.To() == 4 && m.raft.GetType() == pb.MsgApp }
		g.tick(30)
		if !r.leader || r.votes(1) {
			t.Errorf("raft leads %v, votes %v, although a voter that answers lacks the change", r.leader, r.votes(1))
		}
		g.heal()
		g.tick(3)
		if r.leader {
			t.Error("raft leads on")
		}
	})
	t.Run("one is silent", func(t *testing.T) {
		g, r := start(t)
		g.kill(4)
		g.tick(20)
		if r.leader || r.dismissal != nil {
			t.Error("raft waits for a voter that is lost")
		}
	})
	t.Run("all are silent", func(t *testing.T) {
		g, r := start(t)
		g.untilRemoved(r)
		g.isolate(1)
		g.tick(30)
		if r.leader || r.dismissal == nil {
			t.Fatalf("raft leads %v; it waits %v", r.leader, r.dismissal != nil)
		}
		g.heal()
		r.campaign()
		g.run()
		if !r.leader || g.roles[1].Leading {
			t.Errorf("raft leads %v: %+v", r.leader, g.roles[1])
		}
		g.tick(3)
		if r.leader || r.dismissal != nil {
			t.Error("raft leads on")
		}
	})
}

// A committed change that contradicts the earlier ones ends a replica.
func TestFailure(t *testing.T) {
	g := newGroupOf(t, 3, Config{})
	g.add(Config{ID: 4})
	g.change([]ID{1, 2, 4}, nil)
	r := g.replicas[2]
	for name, cc := range map[string]*pb.ConfChangeV2{
		"leaves no joint configuration": {},
		"adds a former member": {
			Transition: pb.ConfChangeTransitionJointExplicit.Enum(), Changes: []*pb.ConfChangeSingle{{NodeId: new(uint64(3))}},
		},
	} {
		r.failed = nil
		data, err := proto.Marshal(cc)
		if err != nil {
			t.Fatal(err)
		}
		r.apply(&pb.Entry{Type: pb.EntryConfChangeV2.Enum(), Index: new(r.machine.index + 1), Term: new(r.term), Data: data})
		if err := r.Err(); !errors.Is(err, ErrFailed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.Write(nil); !errors.Is(err, ErrFailed) {
		t.Errorf("a write: %v", err)
	}
	m := &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(2))}
	if err := r.Step(Message{raft: m}); !errors.Is(err, ErrFailed) {
		t.Errorf("a message: %v", err)
	}
	r.Tick()
	if out := r.Output(); out.Role.Leader != 0 || out.Messages != nil {
		t.Errorf("%+v", out)
	}
}

// A Confirm can wait for voters that a change removes. Then the remaining voters confirm it.
func TestConfirmDuringChange(t *testing.T) {
	g := newGroupOf(t, 3, Config{})
	r := g.leader()
	change, err := r.Change([]ID{1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	g.drop = func(m Message) bool { return m.raft.GetType() == pb.MsgHeartbeatResp }
	confirm := g.confirm(r)
	g.settled(r, change, nil)
	g.settled(r, confirm, nil)
}

func TestBehind(t *testing.T) {
	g := newGroupOf(t, 3, Config{})
	r := g.leader()
	g.add(Config{ID: 4})
	g.change([]ID{1, 2, 3}, []ID{4})
	g.tick(50)
	if got := r.Behind(5); got != nil {
		t.Errorf("behind: %v", got)
	}
	g.drop = func(m Message) bool { return m.From() >= 3 }
	g.tick(19)
	if got := r.Behind(20); got != nil {
		t.Errorf("behind after 19 ticks: %v", got)
	}
	g.tick(2)
	if got := r.Behind(20); !slices.Equal(got, []ID{3}) { // a learner is not a voter
		t.Errorf("silent voters: %v", got)
	}
	g.heal()
	g.tick(2)
	if got := r.Behind(3); got != nil {
		t.Errorf("behind after it has answered: %v", got)
	}
	// A voter that answers but never receives entries is behind, too.
	g.drop = func(m Message) bool { return m.To() == 3 && m.raft.GetType() == pb.MsgApp }
	g.write(r, "k", "v")
	g.tick(21)
	if got := r.Behind(20); !slices.Equal(got, []ID{3}) {
		t.Errorf("voters that lag: %v", got)
	}
	if got := g.replicas[2].Behind(0); got != nil {
		t.Errorf("a follower reports %v", got)
	}
}

// A voter that the leader cannot reach asks the others for their votes again and again. Its requests are no sign of
// life: the voter receives no entries.
func TestBehindOneWay(t *testing.T) {
	g := newGroupOf(t, 2, Config{})
	r := g.leader()
	g.add(Config{ID: 3, ElectionTimeout: func() int { return 10 }})
	g.change([]ID{1, 2, 3}, nil)
	g.drop = func(m Message) bool { return m.From() == 1 && m.To() == 3 }
	g.sent = nil
	g.tick(30)
	if !slices.ContainsFunc(g.sent, func(m Message) bool { return m.From() == 3 && m.To() == 1 }) {
		t.Error("the voter has asked for no vote")
	}
	if got := r.Behind(20); !slices.Equal(got, []ID{3}) {
		t.Errorf("silent voters: %v", got)
	}
	for _, m := range r.Status().Members {
		if silent := m.Silent >= 20; silent != (m.ID == 3) {
			t.Errorf("replica %d is silent for %d ticks", m.ID, m.Silent)
		}
	}
	if !g.roles[1].Leading {
		t.Error("the leader leads no more")
	}
}

// The group survives the loss of any voter only once each voter has applied the latest change.
func TestSurvivesLoss(t *testing.T) {
	g := newGroup(t)
	r := g.leader()
	g.add(Config{ID: 2})
	g.add(Config{ID: 3})
	if r.Status().SurvivesLoss() {
		t.Error("one voter")
	}
	g.change([]ID{1, 2}, nil)
	if r.Status().SurvivesLoss() {
		t.Error("two voters")
	}
	g.drop = func(m Message) bool { return m.To() == 3 }
	change, err := r.Change([]ID{1, 2, 3}, nil)
	if err != nil {
		t.Fatal(err)
	}
	g.tick(5)
	g.settled(r, change, nil) // replicas 1 and 2 are a majority
	if s := r.Status(); s.SurvivesLoss() {
		t.Errorf("replica 3 does not know of the change: %+v", s)
	}
	g.heal()
	g.tick(5)
	if s := r.Status(); !s.SurvivesLoss() {
		t.Errorf("all know of the change: %+v", s)
	}
	if s := g.replicas[2].Status(); s.SurvivesLoss() || s.Members != nil {
		t.Errorf("a follower: %+v", s)
	}
}
