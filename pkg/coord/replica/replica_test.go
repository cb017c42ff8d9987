package replica

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

func TestFounderLeads(t *testing.T) {
	g := newGroup(t)
	r := g.leader()
	first, second := g.write(r, "k", "v"), g.confirm(r)
	g.settled(r, first, nil)
	g.settled(r, second, nil)
	if got := string(r.Value("b", "k")); got != "v" {
		t.Errorf("the value is %q", got)
	}
	want := Status{
		Role: Role{Leader: 1, Term: 2, Leading: true}, Applied: 3, Commit: 3, Voters: []ID{1}, Changed: 1, Highest: 1,
	}
	if diff := cmp.Diff(want, r.Status()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestConfigErrors(t *testing.T) {
	timeout := func() int { return 20 }
	for name, cfg := range map[string]Config{
		"id":        {ElectionTimeout: timeout},
		"high id":   {ID: 1 << 62, ElectionTimeout: timeout},
		"timeout":   {ID: 1},
		"ticks":     {ID: 1, ElectionTimeout: timeout, ElectionTicks: 2, HeartbeatTicks: 2},
		"negative":  {ID: 1, ElectionTimeout: timeout, MaxLog: -1},
		"MaxAppend": {ID: 1, ElectionTimeout: timeout, MaxAppend: maxAppend + 1},
		"inflight":  {ID: 1, ElectionTimeout: timeout, MaxInflight: maxAppend - 1},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The contents and the effect of a write survive the loss of the leader.
func TestLeaderIsLost(t *testing.T) {
	g := newGroupOf(t, 3, Config{})
	r := g.leader()
	g.settled(r, g.write(r, "k", "v"), nil)
	deleted := g.write(r, "gone", "v")
	g.settled(r, deleted, nil)
	if _, err := r.Write([]Edit{{Bucket: "b", Key: "gone"}, {Bucket: "c", Key: "none"}}); err != nil {
		t.Fatal(err)
	}
	g.run()
	g.kill(1)
	g.elect(2)
	r = g.leader()
	g.settled(r, g.confirm(r), nil)
	g.settled(r, g.write(r, "k2", "v2"), nil)
	g.tick(2)
	want := []Edit{{"b", "k", []byte("v")}, {"b", "k2", []byte("v2")}}
	for _, id := range []ID{2, 3} {
		if diff := cmp.Diff(want, slices.Collect(g.replicas[id].machine.all())); diff != "" {
			t.Errorf("replica %d (-want +got):\n%s", id, diff)
		}
	}
}

// Voters that learn of the end of the leader's process elect another leader at once. If the first voter in turn cannot
// lead, the next one does. A voter that alone learns of the end waits for the others.
func TestLeaderEnded(t *testing.T) {
	for _, tt := range []struct {
		name   string
		learn  []ID
		gone   []ID // voters that end with the leader
		leader ID
		within int
	}{
		{name: "all learn of it", learn: []ID{2, 3, 4, 5}, leader: 2, within: 1},
		{name: "one after the other", learn: []ID{5, 4, 3, 2}, leader: 2, within: 1},
		{name: "the first one is gone too", learn: []ID{3, 4, 5}, gone: []ID{2}, leader: 3, within: 3},
		{name: "a majority learns of it", learn: []ID{2, 3, 4}, leader: 2, within: 1},
		{name: "one learns of it", learn: []ID{3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGroupOf(t, 5, Config{})
			g.settled(g.leader(), g.write(g.leader(), "k", "v"), nil)
			for range 3 {
				g.replicas[1].Tick()
			}
			late := g.replicas[1].Output().Messages // heartbeats that are on their way when the leader ends
			for _, id := range append(tt.gone, 1) {
				g.kill(id)
			}
			for _, id := range tt.learn {
				g.replicas[id].LeaderEnded(1)
				for _, m := range late {
					if m.To() == id {
						g.step(g.replicas[id], m)
					}
				}
				g.run()
			}
			if g.tick(tt.within); tt.leader == 0 {
				g.tick(5)
				for id, role := range g.roles {
					if g.replicas[id] != nil && role.Leader > 1 {
						t.Errorf("%d follows %d", id, role.Leader)
					}
				}
				return
			}
			if r := g.leader(); r.id != tt.leader {
				t.Errorf("%d leads, want %d", r.id, tt.leader)
			}
			g.settled(g.leader(), g.confirm(g.leader()), nil)
		})
	}
}

// A leader whose end was reported by mistake follows the next leader.
func TestLeaderEndedByMistake(t *testing.T) {
	g := newGroupOf(t, 3, Config{})
	for _, id := range []ID{2, 3} {
		g.replicas[id].LeaderEnded(1)
	}
	g.tick(3)
	if r := g.leader(); r.id != 2 {
		t.Errorf("%d leads", r.id)
	}
	g.replicas[1].LeaderEnded(3) // replica 3 does not lead
	g.tick(30)
	if r := g.leader(); r.id != 2 {
		t.Errorf("%d leads later", r.id)
	}
}

// A candidate waits as long for votes as for pre-votes, because the pre-votes may come late.
func TestCandidateWaits(t *testing.T) {
	g := newGroupOf(t, 3, Config{})
	g.kill(1)
	g.tick(10)
	r := g.replicas[2]
	r.cfg.ElectionTimeout = func() int { return 10 }
	var promises []Message
	g.drop = func(m Message) bool {
		late := m.raft.GetType() == pb.MsgPreVoteResp
		if late {
			promises = append(promises, m)
		}
		return late || m.raft.GetType() == pb.MsgVoteResp
	}
	r.campaign()
	g.tick(9)
	g.step(r, promises[0])
	term := r.term
	g.tick(9)
	if g.run(); r.term != term || len(promises) > 1 {
		t.Errorf("campaigns again after %d terms, %d promises", r.term-term, len(promises))
	}
}

// A follower campaigns after exactly the returned number of ticks, and asks for a new number after each campaign.
func TestElectionTimeout(t *testing.T) {
	g := newGroupOf(t, 3, Config{})
	timeouts := []int{205, 25, 3, never} // 3 counts as ElectionTicks
	r := g.replicas[2]
	r.cfg.ElectionTimeout = func() int {
		next := timeouts[0]
		timeouts = timeouts[1:]
		return next
	}
	r.timeout = 105
	g.tick(2)
	r.silent = 0
	var campaigns []int
	for now := 1; now <= 350; now++ {
		r.Tick()
		for _, m := range r.Output().Messages {
			if m.raft.GetType() == pb.MsgPreVote && m.To() == 1 {
				campaigns = append(campaigns, now)
			}
		}
	}
	if want := []int{105, 310, 335, 345}; !slices.Equal(campaigns, want) {
		t.Errorf("it campaigns at %v, want %v", campaigns, want)
	}
}

// Nobody votes while there is a leader. Everybody votes ElectionTicks after the leader's last message.
func TestVotesOnlyWithoutLeader(t *testing.T) {
	g := newGroupOf(t, 3, Config{})
	g.tick(30)
	g.replicas[2].campaign()
	g.run()
	if g.leader().id != 1 {
		t.Error("a replica deposes a leader that is well")
	}
	g.tick(3)
	g.kill(1)
	g.tick(9)
	g.replicas[2].campaign()
	g.run()
	if role := g.roles[2]; role.Leading {
		t.Errorf("elected too soon: %+v", role)
	}
	g.tick(1)
	if role := g.roles[3]; role.Leader != 0 {
		t.Errorf("replica 3 still knows leader %d", role.Leader)
	}
	g.elect(2)
}

func TestDeposedLeader(t *testing.T) {
	g := newGroupOf(t, 3, Config{})
	old := g.leader()
	g.isolate(1)
	write, confirm := g.write(old, "k", "old"), g.confirm(old)
	change, err := old.Change([]ID{1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	g.pending(old, write)
	g.pending(old, confirm)
	g.tick(25) // the old leader steps down, because no majority answers
	if g.roles[1].Leading || g.roles[1].Leader != 0 {
		t.Errorf("%+v", g.roles[1])
	}
	g.settled(old, write, ErrUnknown)
	g.settled(old, change, ErrUnknown)
	g.settled(old, confirm, ErrNotLeading)
	for name, f := range map[string]func() error{
		"write":    func() error { _, err := old.Write(nil); return err },
		"confirm":  func() error { _, err := old.Confirm(); return err },
		"change":   func() error { _, err := old.Change([]ID{1}, nil); return err },
		"transfer": func() error { return old.TransferTo(2) },
	} {
		if err := f(); !errors.Is(err, ErrNotLeading) {
			t.Errorf("%s: %v", name, err)
		}
	}
	g.elect(2)
	g.settled(g.leader(), g.write(g.leader(), "k", "new"), nil)
	g.heal()
	g.tick(3)
	if got := string(old.Value("b", "k")); got != "new" {
		t.Errorf("the old leader has %q", got)
	}
}

// A leader whose network is cut does not confirm, although it does not know yet that there is another leader.
func TestConfirmNeedsMajority(t *testing.T) {
	g := newGroupOf(t, 3, Config{})
	old := g.leader()
	g.isolate(1)
	for _, id := range []ID{2, 3} {
		for range 10 {
			g.replicas[id].Tick()
		}
	}
	g.replicas[2].campaign()
	g.run()
	if !g.roles[1].Leading || !g.roles[2].Leading {
		t.Fatalf("%+v", g.roles)
	}
	confirm := g.confirm(old)
	g.pending(old, confirm)
	g.heal()
	g.tick(3)
	g.settled(old, confirm, ErrNotLeading)
}

// A new leader does not lead before it has applied an entry of its own term.
func TestLeadsWithAllWrites(t *testing.T) {
	g := newGroupOf(t, 3, Config{})
	g.tick(1)
	r := g.leader()
	g.drop = func(m Message) bool { return m.To() == 1 } // the others have the write but do not know that it is committed
	g.write(r, "k", "v")
	g.run()
	g.kill(1)
	g.tick(10)
	g.drop = func(m Message) bool { return m.raft.GetType() == pb.MsgAppResp }
	g.replicas[2].campaign()
	g.run()
	if role := g.roles[2]; role.Leader != 2 || role.Leading || g.replicas[2].Value("b", "k") != nil {
		t.Fatalf("%+v", role)
	}
	if _, err := g.replicas[2].Confirm(); !errors.Is(err, ErrNotLeading) {
		t.Errorf("%v", err)
	}
	g.heal()
	g.tick(3)
	if r := g.leader(); r.id != 2 || string(r.Value("b", "k")) != "v" {
		t.Errorf("replica %d leads with %q", r.id, r.Value("b", "k"))
	}
}

func TestTransfer(t *testing.T) {
	g := newGroupOf(t, 3, Config{})
	r := g.leader()
	g.isolate(2)
	if err := r.TransferTo(2); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Write(nil); !errors.Is(err, ErrBusy) {
		t.Errorf("a write during a transfer: %v", err)
	}
	g.tick(11)
	g.settled(r, g.write(r, "k", "v"), nil) // the transfer has failed
	g.heal()
	g.tick(3)
	for _, id := range []ID{1, 4} {
		if err := r.TransferTo(id); !errors.Is(err, ErrMembers) {
			t.Errorf("a transfer to %d: %v", id, err)
		}
	}
	if err := r.TransferTo(3); err != nil {
		t.Fatal(err)
	}
	if g.leader().id != 3 { // without a tick
		t.Errorf("replica %d leads", g.leader().id)
	}
}

func TestWriteLimits(t *testing.T) {
	g := newGroupOf(t, 3, Config{})
	r := g.leader()
	r.cfg.MaxWrite = 100
	if _, err := r.Write([]Edit{{Key: strings.Repeat("k", 100)}}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a large write: %v", err)
	}
	g = newGroup(t)
	small := g.add(Config{ID: 2, MaxPending: 1000})
	g.add(Config{ID: 3})
	g.change([]ID{1, 2, 3}, nil)
	if err := g.leader().TransferTo(2); err != nil {
		t.Fatal(err)
	}
	g.run()
	g.isolate(small.id)
	var refused error
	for i := range 100 {
		if _, err := small.Write([]Edit{{Key: fmt.Sprint(i), Value: make([]byte, 100)}}); err != nil {
			refused = err
			break
		}
	}
	if !errors.Is(refused, ErrBusy) || small.log.size > 10000 {
		t.Errorf("writes that nobody acknowledges: %v after %d bytes", refused, small.log.size)
	}
}

// A follower that acknowledges nothing does not receive ever more entries.
func TestInflightIsBounded(t *testing.T) {
	g := newGroupOf(t, 3, Config{})
	r := g.leader()
	g.settled(r, g.write(r, "k", "v"), nil)
	g.drop = func(m Message) bool { return m.From() == 3 }
	g.sent = nil
	for i := range 20 {
		g.write(r, fmt.Sprint(i), strings.Repeat("v", 1<<20))
		g.run()
	}
	size := 0
	for _, m := range g.sent {
		for _, e := range m.raft.GetEntries() {
			if m.To() == 3 {
				size += len(e.GetData())
			}
		}
	}
	if size < 4<<20 || size > 6<<20 {
		t.Errorf("%d bytes are on their way", size)
	}
}

// Memory stays bounded, and a follower that is too far behind gets a snapshot.
func TestLogIsBounded(t *testing.T) {
	g := newGroup(t)
	r := g.leader()
	r.cfg.MaxLog = 10000
	write := func() {
		for i := range 1000 {
			g.settled(r, g.write(r, fmt.Sprint(i%10), strings.Repeat("v", 100)), nil)
			if r.log.size > r.cfg.MaxLog {
				t.Fatalf("the log has %d bytes", r.log.size)
			}
		}
	}
	write()
	g.add(Config{ID: 2, MaxLog: 10000})
	g.add(Config{ID: 3, MaxLog: 10000})
	g.change([]ID{1, 2, 3}, nil)
	g.isolate(3)
	write()
	for _, id := range []ID{1, 2} {
		if size := g.replicas[id].log.size; size > 10000 || size < 4000 {
			t.Errorf("the log of replica %d has %d bytes", id, size)
		}
	}
	g.heal()
	g.sent = nil
	g.tick(20)
	if diff := cmp.Diff(slices.Collect(r.machine.all()), slices.Collect(g.replicas[3].machine.all())); diff != "" {
		t.Errorf("replica 3 (-want +got):\n%s", diff)
	}
	if n := snapshots(g.sent); n != 1 {
		t.Errorf("%d snapshots", n)
	}
}

func snapshots(sent []Message) (n int) {
	for _, m := range sent {
		if m.IsSnapshot() {
			n++
		}
	}
	return n
}

// acknowledges reports whether a follower acknowledges entries or a snapshot.
func acknowledges(m Message) bool { return m.raft.GetType() == pb.MsgAppResp && !m.raft.GetReject() }

// The leader repeats a lost snapshot, but not a snapshot whose acknowledgment was lost.
func TestLostSnapshot(t *testing.T) {
	for name, tt := range map[string]struct {
		drop   func(Message) bool
		failed bool
		sent   int
	}{
		"lost":                {drop: func(m Message) bool { return m.IsSnapshot() }, sent: 1},
		"lost, reported":      {drop: func(m Message) bool { return m.IsSnapshot() }, failed: true, sent: 1},
		"acknowledgment lost": {drop: acknowledges, sent: 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t)
			r := g.leader()
			r.cfg.SnapshotTicks = 30
			g.write(r, "k", "v")
			g.add(Config{ID: 2})
			g.drop = tt.drop
			if _, err := r.Change([]ID{1}, []ID{2}); err != nil {
				t.Fatal(err)
			}
			g.tick(5)
			g.heal()
			g.sent = nil
			if tt.failed {
				r.SnapshotFailed(2)
				r.SnapshotFailed(7) // not a member
			} else {
				g.tick(20)
				if n := snapshots(g.sent); n != 0 {
					t.Errorf("%d snapshots were sent again too soon", n)
				}
				g.tick(10)
			}
			g.tick(3)
			if n := snapshots(g.sent); n != tt.sent || string(g.replicas[2].Value("b", "k")) != "v" {
				t.Errorf("%d snapshots were sent again, want %d; the value is %q", n, tt.sent, g.replicas[2].Value("b", "k"))
			}
		})
	}
}

// Entries that a follower will need after a snapshot stay while the snapshot is on its way, within a limit.
func TestSnapshotTakesLong(t *testing.T) {
	g := newGroup(t)
	r := g.leader()
	r.cfg.MaxLog, r.cfg.SnapshotTicks = 2000, never
	g.add(Config{ID: 2})
	held := g.holdSnapshots()
	if _, err := r.Change([]ID{1}, []ID{2}); err != nil {
		t.Fatal(err)
	}
	g.tick(2)
	for i := range 40 {
		g.write(r, fmt.Sprint(i), "v")
	}
	g.tick(2)
	if len(*held) != 1 || r.log.size < 2*r.cfg.MaxLog {
		t.Fatalf("%d snapshots, the log has %d bytes", len(*held), r.log.size)
	}
	g.heal()
	g.sent = nil
	g.deliver((*held)[0])
	g.tick(2)
	if n := snapshots(g.sent); n != 1 || g.replicas[2].machine.index != r.machine.index || r.log.size > r.cfg.MaxLog {
		t.Errorf("%d snapshots, the log has %d bytes; the follower is at %d of %d", n, r.log.size,
			g.replicas[2].machine.index, r.machine.index)
	}
	g.kill(2)
	for i := range 1000 {
		g.write(r, fmt.Sprint(i), "v")
		if r.log.size > limitFactor*r.cfg.MaxLog {
			t.Fatalf("the log has %d bytes", r.log.size)
		}
	}
}

func TestEntryLog(t *testing.T) {
	entry := func(index, term uint64) *pb.Entry {
		return &pb.Entry{Index: new(index), Term: new(term), Data: make([]byte, 100)}
	}
	l := &entryLog{machine: newMachine()}
	l.append([]*pb.Entry{entry(1, 1), entry(2, 1), entry(3, 1)})
	before, err := l.Entries(1, 4, 1000)
	if err != nil || len(before) != 3 {
		t.Fatalf("%d entries, %v", len(before), err)
	}
	for size, want := range map[uint64]int{0: 1, 150: 1, 220: 2} {
		if entries, err := l.Entries(1, 4, size); err != nil || len(entries) != want {
			t.Errorf("%d bytes: %d entries, %v", size, len(entries), err)
		}
	}
	l.append([]*pb.Entry{entry(2, 2)})
	if before[1].GetTerm() != 1 {
		t.Error("a slice that was handed out has changed")
	}
	if term, err := l.Term(2); err != nil || term != 2 || l.last() != 2 || l.size != 2*(100+entrySize) {
		t.Errorf("term %d, %v, last %d, %d bytes", term, err, l.last(), l.size)
	}
	l.machine.index = 1
	l.compact(0, 1<<62)
	if first, _ := l.FirstIndex(); first != 2 { // the second entry is not applied
		t.Errorf("the first index is %d", first)
	}
	for i, want := range map[uint64]error{0: raft.ErrCompacted, 1: nil, 2: nil, 3: raft.ErrUnavailable} {
		if _, err := l.Term(i); !errors.Is(err, want) {
			t.Errorf("term of %d: %v", i, err)
		}
	}
	if _, err := l.Entries(1, 2, 1000); !errors.Is(err, raft.ErrCompacted) {
		t.Errorf("%v", err)
	}
	if _, err := l.Entries(2, 4, 1000); !errors.Is(err, raft.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
