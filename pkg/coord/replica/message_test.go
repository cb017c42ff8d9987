package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// peerState returns the second of three replicas as follower, leader or newcomer.
func peerState(t testing.TB, state string) *Replica {
	t.Helper()
	g := newGroupOf(t, 3, Config{})
	g.write(g.leader(), "k", "v")
	g.run()
	switch state {
	case "follower":
		return g.replicas[2]
	case "leader":
		if err := g.leader().TransferTo(2); err != nil {
			t.Fatal(err)
		}
		g.run()
		return g.replicas[2]
	default:
		return g.add(Config{ID: 4})
	}
}

// invalid returns messages that a replica refuses. Raft itself panics for most of them.
func invalid() map[string]struct {
	to     string
	m      *pb.Message
	panics bool
} {
	entry := func(index, term uint64, kind pb.EntryType, data ...byte) *pb.Entry {
		return &pb.Entry{Index: new(index), Term: new(term), Type: kind.Enum(), Data: data}
	}
	snapshot := func(index, term uint64, members *pb.ConfState) *pb.Snapshot {
		return &pb.Snapshot{
			Data:     []byte{9},
			Metadata: &pb.SnapshotMetadata{Index: new(index), Term: new(term), ConfState: members},
		}
	}
	app := func(entries ...*pb.Entry) *pb.Message {
		return &pb.Message{Type: pb.MsgApp.Enum(), Term: new(uint64(2)), Entries: entries}
	}
	change, err := proto.Marshal(&pb.ConfChangeV2{Changes: []*pb.ConfChangeSingle{{NodeId: new(uint64(9))}}})
	if err != nil {
		panic(err)
	}
	large := &pb.ConfChangeV2{Transition: pb.ConfChangeTransitionJointExplicit.Enum()}
	for range maxChange / 4 {
		large.Changes = append(large.Changes, &pb.ConfChangeSingle{NodeId: new(uint64(9))})
	}
	largeChange, err := proto.Marshal(large)
	if err != nil {
		panic(err)
	}
	type message = pb.Message
	return map[string]struct {
		to     string
		m      *pb.Message
		panics bool
	}{
		"vote without term":         {"newcomer", &message{Type: pb.MsgVote.Enum()}, true},
		"heartbeat from itself":     {"follower", &message{Type: pb.MsgHeartbeat.Enum(), Term: new(uint64(9)), From: new(uint64(2))}, true},
		"from nobody":               {"follower", &message{Type: pb.MsgHeartbeat.Enum(), Term: new(uint64(9)), From: new(uint64(0))}, false},
		"from a storage thread":     {"follower", &message{Type: pb.MsgHup.Enum(), Term: new(uint64(9)), From: new(uint64(math.MaxUint64))}, false},
		"for another":               {"follower", &message{Type: pb.MsgHeartbeat.Enum(), Term: new(uint64(9)), To: new(uint64(3))}, false},
		"proposal without entries":  {"leader", &message{Type: pb.MsgProp.Enum(), Term: new(uint64(3))}, true},
		"read without entries":      {"leader", &message{Type: pb.MsgReadIndex.Enum(), Term: new(uint64(3))}, false},
		"transfer":                  {"leader", &message{Type: pb.MsgTransferLeader.Enum(), Term: new(uint64(3))}, false},
		"highest term":              {"follower", &message{Type: pb.MsgHeartbeat.Enum(), Term: new(uint64(math.MaxUint64))}, false},
		"log of a later term":       {"follower", &message{Type: pb.MsgVote.Enum(), Term: new(uint64(9)), LogTerm: new(uint64(10))}, false},
		"responses":                 {"follower", &message{Type: pb.MsgHeartbeat.Enum(), Term: new(uint64(2)), Responses: []*message{{}}}, false},
		"heartbeat beyond the log":  {"follower", &message{Type: pb.MsgHeartbeat.Enum(), Term: new(uint64(2)), Commit: new(uint64(1000))}, true},
		"short context":             {"leader", &message{Type: pb.MsgHeartbeatResp.Enum(), Term: new(uint64(3)), Context: []byte{1}}, true},
		"a read that never was":     {"leader", &message{Type: pb.MsgHeartbeatResp.Enum(), Term: new(uint64(3)), Context: binary.LittleEndian.AppendUint64(nil, 1)}, false},
		"acknowledges the future":   {"leader", &message{Type: pb.MsgAppResp.Enum(), Term: new(uint64(3)), Index: new(uint64(1000))}, false},
		"entry gap":                 {"newcomer", app(entry(2, 1, pb.EntryNormal)), false},
		"entries out of order":      {"newcomer", app(entry(1, 1, pb.EntryNormal), entry(0, 1, pb.EntryNormal)), false},
		"entry of a later term":     {"newcomer", app(entry(1, 3, pb.EntryNormal)), false},
		"entry of term 0":           {"newcomer", app(entry(1, 0, pb.EntryNormal)), false},
		"entry terms go back":       {"newcomer", app(entry(1, 2, pb.EntryNormal), entry(2, 1, pb.EntryNormal)), false},
		"malformed edits":           {"newcomer", app(entry(1, 1, pb.EntryNormal, 7)), false},
		"old kind of change":        {"newcomer", app(entry(1, 1, pb.EntryConfChange)), false},
		"malformed change":          {"newcomer", app(entry(1, 1, pb.EntryConfChangeV2, 255)), false},
		"change without joint":      {"newcomer", app(entry(1, 1, pb.EntryConfChangeV2, change...)), false},
		"large change":              {"newcomer", app(entry(1, 1, pb.EntryConfChangeV2, largeChange...)), false},
		"entries in a heartbeat":    {"newcomer", &message{Type: pb.MsgHeartbeat.Enum(), Term: new(uint64(2)), Entries: []*pb.Entry{entry(1, 1, pb.EntryNormal)}}, false},
		"snapshot missing":          {"newcomer", &message{Type: pb.MsgSnap.Enum(), Term: new(uint64(2))}, false},
		"snapshot in a heartbeat":   {"newcomer", &message{Type: pb.MsgHeartbeat.Enum(), Term: new(uint64(2)), Snapshot: snapshot(9, 1, &pb.ConfState{Voters: []uint64{4}})}, false},
		"snapshot voter twice":      {"newcomer", &message{Type: pb.MsgSnap.Enum(), Term: new(uint64(2)), Snapshot: snapshot(9, 1, &pb.ConfState{Voters: []uint64{4, 4}})}, true},
		"snapshot voter learns":     {"newcomer", &message{Type: pb.MsgSnap.Enum(), Term: new(uint64(2)), Snapshot: snapshot(9, 1, &pb.ConfState{Voters: []uint64{4}, Learners: []uint64{4}})}, true},
		"snapshot without voters":   {"newcomer", &message{Type: pb.MsgSnap.Enum(), Term: new(uint64(2)), Snapshot: snapshot(9, 1, &pb.ConfState{Learners: []uint64{4}})}, true},
		"snapshot voter 0":          {"newcomer", &message{Type: pb.MsgSnap.Enum(), Term: new(uint64(2)), Snapshot: snapshot(9, 1, &pb.ConfState{Voters: []uint64{4, 0}})}, true},
		"snapshot of a later term":  {"newcomer", &message{Type: pb.MsgSnap.Enum(), Term: new(uint64(2)), Snapshot: snapshot(9, 3, &pb.ConfState{Voters: []uint64{4}})}, false},
		"snapshot at index 0":       {"newcomer", &message{Type: pb.MsgSnap.Enum(), Term: new(uint64(2)), Snapshot: snapshot(0, 1, &pb.ConfState{Voters: []uint64{4}})}, false},
		"snapshot with a bad state": {"newcomer", &message{Type: pb.MsgSnap.Enum(), Term: new(uint64(2)), Snapshot: &pb.Snapshot{Data: []byte{9, 7}, Metadata: snapshot(9, 1, &pb.ConfState{Voters: []uint64{4}}).Metadata}}, false},
	}
}

// addressed completes a message of invalid so that it is for r.
func addressed(m *pb.Message, r *Replica) *pb.Message {
	m = proto.Clone(m).(*pb.Message)
	if m.From == nil {
		m.From = new(uint64(1))
	}
	if m.To == nil {
		m.To = new(uint64(r.id))
	}
	return m
}

func TestStepRefuses(t *testing.T) {
	for name, tt := range invalid() {
		r := peerState(t, tt.to)
		m := Message{raft: addressed(tt.m, r)}
		if err := r.Step(m); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: step: %v", name, err)
		}
		if data, err := m.Encode(); err != nil {
			t.Errorf("%s: encode: %v", name, err)
		} else if m, err := Decode(data); err == nil && !errors.Is(r.Step(m), ErrMessage) {
			t.Errorf("%s: step after decode: no error", name)
		}
	}
	if err := peerState(t, "leader").Step(Message{}); !errors.Is(err, ErrMessage) {
		t.Errorf("no message: %v", err)
	}
}

// The checks are needed only because raft panics. If raft no longer panics, they can go.
func TestRaftPanics(t *testing.T) {
	for name, tt := range invalid() {
		if !tt.panics {
			continue
		}
		r := peerState(t, tt.to)
		panicked := func() (p any) {
			defer func() { p = recover() }()
			m := addressed(tt.m, r)
			if m.GetType() == pb.MsgHup || m.GetType() == pb.MsgReadIndex {
				m.Term = nil
			}
			r.node.Step(m)
			return nil
		}()
		if panicked == nil {
			t.Errorf("%s: raft does not panic", name)
		}
	}
}

// A message that raft drops silently is no error, for example a late answer of a former member.
func TestStepAccepts(t *testing.T) {
	r := peerState(t, "leader")
	for name, m := range map[string]*pb.Message{
		"a former member":     {Type: pb.MsgHeartbeatResp.Enum(), Term: new(uint64(3)), From: new(uint64(7))},
		"an earlier term":     {Type: pb.MsgHeartbeat.Enum(), Term: new(uint64(1)), Commit: new(uint64(1000))},
		"a rejection":         {Type: pb.MsgAppResp.Enum(), Term: new(uint64(3)), Reject: new(true), Index: new(uint64(1000))},
		"a read of long ago":  {Type: pb.MsgHeartbeatResp.Enum(), Term: new(uint64(1)), Context: make([]byte, 8)},
		"an obsolete content": {Type: pb.MsgApp.Enum(), Term: new(uint64(1)), Index: new(uint64(50)), LogTerm: new(uint64(1))},
	} {
		if err := r.Step(Message{raft: addressed(m, r)}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDecodeIsBounded(t *testing.T) {
	m := &pb.Message{Type: pb.MsgApp.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(1))}
	for i := range maxEntries + 1 {
		m.Entries = append(m.Entries, &pb.Entry{Index: new(uint64(i + 1)), Term: new(uint64(1))})
	}
	data, err := Message{raft: m}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(data); !errors.Is(err, ErrMessage) {
		t.Errorf("too many entries: %v", err)
	}
	m.Entries = m.Entries[:maxEntries]
	if data, err = (Message{raft: m, applied: 7}).Encode(); err != nil {
		t.Fatal(err)
	}
	if m, err := Decode(data); err != nil || m.applied != 7 || m.From() != 1 || m.To() != 2 || m.IsSnapshot() {
		t.Errorf("the most entries: %v", err)
	}
	if err := checkSize([]byte{fieldResponses<<3 | 2, 0}); !errors.Is(err, ErrMessage) {
		t.Errorf("nested messages: %v", err)
	}
	voters := &pb.ConfState{Voters: make([]uint64, maxChange/4)}
	half := &pb.Message{Snapshot: &pb.Snapshot{Metadata: &pb.SnapshotMetadata{ConfState: voters}}}
	if data, err = (Message{raft: half}).Encode(); err != nil {
		t.Fatal(err)
	}
	if err := checkSize(data[1:]); err != nil {
		t.Errorf("half as large: %v", err)
	}
	if err := checkSize(append(data[1:], data[1:]...)); !errors.Is(err, ErrMessage) {
		t.Errorf("two parts of the members that are too large together: %v", err)
	}
	for _, data := range [][]byte{nil, {1}, {1, 255}, {255}, binary.AppendUvarint(nil, math.MaxUint64)} {
		if _, err := Decode(data); !errors.Is(err, ErrMessage) {
			t.Errorf("%x: %v", data, err)
		}
	}
}

func TestEdits(t *testing.T) {
	edits := []Edit{{"b", "k", []byte("v")}, {"", "", nil}, {"b", "empty", []byte{}}}
	data := appendEdits(nil, slices.Values(edits))
	var got []Edit
	if err := readEdits(data, func(bucket, key, value []byte) {
		got = append(got, Edit{string(bucket), string(key), value})
	}); err != nil || fmt.Sprint(got) != fmt.Sprint(edits) || got[1].Value != nil || got[2].Value == nil {
		t.Errorf("%v, %v", got, err)
	}
	cut := 0
	for n := range data {
		if readEdits(data[:n], func(_, _, _ []byte) {}) == nil {
			cut++
		}
	}
	if cut != len(edits) { // valid are the empty beginning and those that end between two edits
		t.Errorf("%d of %d beginnings are valid", cut, len(data))
	}
	for _, data := range [][]byte{{3, 0, 0}, {kindPut, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1}} {
		if err := readEdits(data, func(_, _, _ []byte) {}); err == nil {
			t.Errorf("%x: no error", data)
		}
	}
}

// A value does not keep the whole entry that contained it in memory.
func TestValuesAreCopies(t *testing.T) {
	m := newMachine()
	data := appendEdits(nil, slices.Values([]Edit{{"b", "first", []byte("v")}, {"b", "second", []byte("v")}}))
	if err := m.edit(data); err != nil {
		t.Fatal(err)
	}
	clear(data)
	if keys := m.buckets["b"]; string(keys["first"]) != "v" || string(keys["second"]) != "v" {
		t.Errorf("%q", keys)
	}
}

func TestSnapshotHasEverything(t *testing.T) {
	m := newMachine()
	m.members, m.highest, m.index, m.term = &pb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{3}}, 9, 12, 4
	if err := m.edit(appendEdits(nil, slices.Values([]Edit{{"b", "k", []byte("v")}, {"c", "empty", []byte{}}}))); err != nil {
		t.Fatal(err)
	}
	snapshot := m.header()
	snapshot.Data = m.encode()
	got, err := decodeSnapshot(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	if string(got.encode()) != string(m.encode()) || !proto.Equal(got.members, m.members) || got.index != 12 ||
		got.term != 4 || got.highest != 9 || got.changed != 12 || got.buckets["c"]["empty"] == nil {
		t.Errorf("%+v", got)
	}
	for _, data := range [][]byte{nil, {0}, {255}, {9, 1}} {
		if _, err := decodeSnapshot(&pb.Snapshot{Data: data}); err == nil {
			t.Errorf("%x: no error", data)
		}
	}
}

// A snapshot has the contents of its index, even if the replica applies further entries before the message is encoded.
func TestSnapshotIsFrozen(t *testing.T) {
	g := newGroup(t)
	r := g.leader()
	g.write(r, "k", "old")
	g.write(r, "gone", "v")
	g.add(Config{ID: 2})
	held := g.holdSnapshots()
	if _, err := r.Change([]ID{1}, []ID{2}); err != nil {
		t.Fatal(err)
	}
	g.tick(3)
	if len(*held) != 1 || (*held)[0].raft.GetSnapshot().GetData() != nil {
		t.Fatalf("%d snapshots, or the replica has encoded one itself", len(*held))
	}
	if _, err := r.Write([]Edit{{"b", "k", []byte("new")}, {"b", "gone", nil}, {"c", "k", []byte("v")}}); err != nil {
		t.Fatal(err)
	}
	g.run()
	g.heal()
	g.deliver((*held)[0])
	want := []Edit{{"b", "gone", []byte("v")}, {"b", "k", []byte("old")}}
	if diff := cmp.Diff(want, slices.Collect(g.replicas[2].machine.all())); diff != "" {
		t.Errorf("the snapshot (-want +got):\n%s", diff)
	}
	g.tick(3)
	if got := string(g.replicas[2].Value("b", "k")); got != "new" {
		t.Errorf("after the snapshot: %q", got)
	}
}

// FuzzPeer gives a peer's bytes to replicas in each state. No replica panics, and Encode reproduces every message that
// Decode accepts.
func FuzzPeer(f *testing.F) {
	g := newGroupOf(f, 3, Config{MaxLog: 500})
	for i := range 8 {
		g.write(g.leader(), fmt.Sprint(i), "v")
		g.run()
	}
	g.kill(3)
	g.add(Config{ID: 4})
	g.change([]ID{1, 2, 4}, nil)
	if err := g.leader().TransferTo(2); err != nil {
		f.Fatal(err)
	}
	g.run()
	for i := 0; i+3 <= len(g.sent); i += 3 {
		f.Add(frames(f, g.sent[i:i+3]))
	}
	for _, bad := range invalid() {
		f.Add(frames(f, []Message{{raft: addressed(bad.m, &Replica{id: 2})}}))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, state := range []string{"follower", "leader", "newcomer"} {
			r := peerState(t, state)
			for rest := data; len(rest) > 0; {
				size, n := binary.Uvarint(rest)
				if n <= 0 || size > uint64(len(rest)-n) {
					break
				}
				m, err := Decode(rest[n : n+int(size)])
				rest = rest[n+int(size):]
				if err != nil {
					continue
				}
				if again, err := m.Encode(); err != nil {
					t.Fatal(err)
				} else if other, err := Decode(again); err != nil || !proto.Equal(m.raft, other.raft) {
					t.Fatalf("%v: %v is read again as %v", err, m.raft, other.raft)
				}
				m.raft.To = new(uint64(r.id))
				r.Step(m)
				r.Confirm()
				r.Write([]Edit{{Key: "k"}})
				r.Output()
			}
			for range 25 {
				r.Tick()
			}
			r.Output()
		}
	})
}

// frames returns messages in the form that FuzzPeer reads.
func frames(t testing.TB, messages []Message) (data []byte) {
	t.Helper()
	for _, m := range messages {
		b, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		data = append(binary.AppendUvarint(data, uint64(len(b))), b...)
	}
	return data
}
