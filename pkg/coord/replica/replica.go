package replica

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// Config configures a replica. Times are in ticks of the caller's clock.
type Config struct {
	ID ID
	// Founder makes a new group whose only voter is this replica. Without it the replica has no group until a leader's
	// Change adds it. Until then the replica only answers.
	Founder bool
	// HeartbeatTicks is the time between a leader's heartbeats. Default: 1.
	HeartbeatTicks int
	// ElectionTicks is the time after which a leader that no majority has answered stops leading, and a follower that
	// hears from no leader may vote for another. It must be greater than HeartbeatTicks. Default: 10.
	ElectionTicks int
	// ElectionTimeout returns how many ticks without a message from a leader pass before a voter campaigns. The replica
	// calls it again after each campaign. The values should be random, so that voters rarely campaign at the same time. A
	// value below ElectionTicks counts as ElectionTicks.
	ElectionTimeout func() int
	// SnapshotTicks is the time after which a leader repeats a snapshot that its follower has not acknowledged, counted
	// from the last SnapshotProgress. Default: 10 times ElectionTicks.
	SnapshotTicks int
	// MaxWrite limits the bytes of one Write. Default: 16 MiB.
	MaxWrite int
	// MaxLog is how many bytes of applied entries the replica keeps for followers that are behind. A follower that is
	// further behind gets a snapshot. While a snapshot is on its way, the leader keeps up to 8 times MaxLog. Default:
	// 4 MiB.
	MaxLog int
	// MaxPending limits the bytes of uncommitted writes, unless there is only one write. Default: 64 MiB.
	MaxPending int
	// MaxAppend limits the bytes of entries in one message, unless there is only one entry. Default and maximum: 256 KiB.
	MaxAppend int
	// MaxInflight limits the bytes of entries on their way to one follower. At the limit, no further message is sent until
	// the follower has acknowledged some entries. At least MaxAppend. Default: 4 MiB.
	MaxInflight int
}

// withDefaults returns c with its defaults, or an error if a value is invalid.
func (c Config) withDefaults() (Config, error) {
	c.HeartbeatTicks = cmp.Or(c.HeartbeatTicks, 1)
	c.ElectionTicks = cmp.Or(c.ElectionTicks, 10)
	c.SnapshotTicks = cmp.Or(c.SnapshotTicks, 10*c.ElectionTicks)
	c.MaxWrite = cmp.Or(c.MaxWrite, 16<<20)
	c.MaxLog = cmp.Or(c.MaxLog, 4<<20)
	c.MaxPending = cmp.Or(c.MaxPending, 64<<20)
	c.MaxAppend = cmp.Or(c.MaxAppend, maxAppend)
	c.MaxInflight = cmp.Or(c.MaxInflight, 4<<20)
	switch {
	case !c.ID.valid():
		return c, fmt.Errorf("replica: id %d is out of range", c.ID)
	case c.ElectionTimeout == nil:
		return c, errors.New("replica: ElectionTimeout is missing")
	case c.HeartbeatTicks < 0 || c.ElectionTicks <= c.HeartbeatTicks || c.SnapshotTicks < 0:
		return c, fmt.Errorf("replica: ticks are out of range: heartbeat %d, election %d, snapshot %d",
			c.HeartbeatTicks, c.ElectionTicks, c.SnapshotTicks)
	case min(c.MaxWrite, c.MaxLog, c.MaxPending, c.MaxAppend) < 0 || c.MaxAppend > min(maxAppend, c.MaxInflight):
		return c, errors.New("replica: a limit is out of range")
	}
	return c, nil
}

// ErrFailed means that the replica has met entries that contradict each other, and has stopped for good. This happens
// only if two replicas had the same id or a group was founded twice.
var ErrFailed = errors.New("replica: the group is inconsistent")

// Replica is one replica of the store's contents. Only one goroutine may use it at a time.
type Replica struct {
	id      ID
	cfg     Config
	node    *raft.RawNode
	log     *entryLog
	machine *machine
	failed  error // set once the replica has failed

	// What raft has reported last:
	term   uint64
	vote   ID
	commit uint64
	lead   ID
	leader bool // raft's own view; the replica leads only once it has applied an entry of this term too

	now     int // ticks since the start
	silent  int // ticks since a leader sent something, or since this replica voted or campaigned
	timeout int // ticks of silence after which it campaigns
	ended   ID  // the leader whose process has ended
	hurries int // the tick until which this replica campaigns again after a few ticks, because ended has ended

	applyMembers func(*pb.ConfChangeV2) *pb.ConfState // the node's method; a test replaces it with a faulty one
	leaves       uint64                               // the term in which it proposed the end of the current change
	dismissal    *pb.ConfChangeV2                     // the end of a change that removes this leader; see dismiss
	incoming     *machine                             // the decoded snapshot of the message in Step
	messages     []*pb.Message                        // to be sent
	requests                                          // the pending requests of the caller
	peers        map[ID]*peer                         // a leader's record of the others; empty unless raft leads
}

// New returns a replica. A founder leads when New returns.
func New(cfg Config) (*Replica, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	m := newMachine()
	l := &entryLog{machine: m}
	if cfg.Founder {
		m.members.Voters, m.highest = []uint64{uint64(cfg.ID)}, cfg.ID
		l.begin(m, 1, 1)
	}
	node, err := newNode(cfg, l)
	if err != nil {
		return nil, err
	}
	r := &Replica{id: cfg.ID, cfg: cfg, node: node, log: l, machine: m, peers: map[ID]*peer{}}
	r.applyMembers = func(cc *pb.ConfChangeV2) *pb.ConfState { return r.node.ApplyConfChange(cc) }
	r.term, r.commit = l.start.GetTerm(), l.start.GetCommit()
	r.campaign()
	return r, nil
}

// newNode returns raft's part of a replica that starts with the state of l.
func newNode(cfg Config, l *entryLog) (*raft.RawNode, error) {
	node, err := raft.NewRawNode(&raft.Config{
		ID: uint64(cfg.ID), ElectionTick: cfg.ElectionTicks, HeartbeatTick: cfg.HeartbeatTicks, Storage: l,
		MaxSizePerMsg: uint64(cfg.MaxAppend), MaxUncommittedEntriesSize: uint64(cfg.MaxPending), MaxInflightMsgs: 64,
		MaxInflightBytes: uint64(cfg.MaxInflight), CheckQuorum: true, PreVote: true, ReadOnlyOption: raft.ReadOnlySafe,
		DisableProposalForwarding: true, StepDownOnRemoval: true, Logger: quiet{},
	})
	if err != nil {
		return nil, fmt.Errorf("replica: %w", err)
	}
	return node, nil
}

// Tick advances the replica's time by one tick.
//
// Raft draws a random election timeout and campaigns from its own tick unless it leads. So a replica passes only a
// leader's ticks to raft, and counts a follower's ticks itself. With a follower's ticks, raft would also end the time
// in which it refuses to vote because it has a leader. ForgetLeader ends that time instead.
func (r *Replica) Tick() {
	if r.failed != nil {
		return
	}
	r.now++
	if r.leader {
		r.node.Tick()
		r.drain()
		r.watchPeers()
		return
	}
	r.silent++
	if r.silent >= r.cfg.ElectionTicks && r.lead != 0 {
		r.forgetLeader()
	}
	if r.silent >= r.timeout {
		r.campaign()
	}
}

func (r *Replica) forgetLeader() {
	if err := r.node.ForgetLeader(); err == nil { // a follower never refuses
		r.drain()
	}
}

// LeaderEnded notes that the leader's process has ended, so that nobody has to wait for its messages. The voters elect
// another leader; the voters with the lowest ids campaign first. The caller should notify all of them, because a voter
// refuses to vote for others as long as it has a leader. LeaderEnded does nothing if this replica knows another leader
// or none. It also does nothing if the replica does not vote: the replica may still need messages that the leader has
// sent, see TakeOver. If the leader still runs, no harm results: it learns that another leader was elected.
func (r *Replica) LeaderEnded(id ID) {
	if r.failed != nil || r.leader || id == 0 || r.lead != id || !r.votes(r.id) {
		return
	}
	r.forgetLeader()
	r.ended, r.hurries = id, r.now+r.cfg.ElectionTicks
	if r.silent, r.timeout = 0, r.turn(); r.timeout == 1 {
		r.campaign()
		r.timeout = 1 // once more, because the others may not have learned of the end yet
	}
}

// turn returns after how many ticks this replica campaigns when the leader's process has ended. The voters campaign one
// after the other, in the order of their ids.
func (r *Replica) turn() int {
	turn := 1
	for _, id := range r.machine.members.GetVoters() {
		if ID(id) < r.id && ID(id) != r.ended {
			turn += 2
		}
	}
	return turn
}

func (r *Replica) drawTimeout() int { return max(r.cfg.ElectionTimeout(), r.cfg.ElectionTicks) }

// campaign asks the other voters whether they would vote for this replica, if it is a voter. The founder of a new group
// is the only voter.
func (r *Replica) campaign() {
	r.silent, r.timeout = 0, r.drawTimeout()
	if r.now < r.hurries {
		r.timeout = r.turn() + 2 // connections to the others may not exist yet
	}
	if !r.votes(r.id) && r.dismissal == nil {
		return
	}
	if err := r.node.Campaign(); err == nil { // raft reports no error
		r.drain()
	}
}

// heardFrom notes a message that raft has stepped. For a leader, only an answer to its own messages shows that another
// member is alive and reachable: a member that the leader does not reach may still ask for votes.
func (r *Replica) heardFrom(m Message) {
	from := m.From()
	p := r.peers[from]
	if p != nil {
		p.applied = max(p.applied, m.applied)
	}
	switch m.raft.GetType() {
	case pb.MsgAppResp, pb.MsgHeartbeatResp:
		if p != nil {
			p.heard = r.now
			p.answers = p.answers || m.raft.GetTerm() == r.term
		}
	case pb.MsgApp, pb.MsgHeartbeat, pb.MsgSnap:
		if r.lead == from && m.raft.GetTerm() == r.term {
			r.silent = 0
		}
	case pb.MsgVote:
		if r.vote == from && m.raft.GetTerm() == r.term {
			r.silent = 0
		}
	}
}

// drain does the work that raft requests until there is no more. Then all committed entries are applied.
func (r *Replica) drain() {
	for r.failed == nil && (r.node.HasReady() || r.proposeLeave()) {
		rd := r.node.Ready()
		r.observe(rd)
		r.messages = append(r.messages, rd.Messages...) // they may leave at once: memory already has what they promise
		if !raft.IsEmptySnap(rd.Snapshot) {
			r.machine, r.dismissal = r.incoming, nil
			r.log.reset(r.machine)
		}
		r.log.append(rd.Entries)
		for _, e := range rd.CommittedEntries {
			r.apply(e)
		}
		for _, s := range rd.ReadStates {
			r.confirmed = Ticket(binary.LittleEndian.Uint64(s.RequestCtx))
		}
		if r.failed == nil {
			r.node.Advance(rd)
		}
	}
	r.settleConfirms()
	if r.log.size > r.cfg.MaxLog {
		r.log.compact(r.cfg.MaxLog, r.onItsWay())
	}
}

// observe records the state that raft reports.
func (r *Replica) observe(rd raft.Ready) {
	led := r.leader
	if !raft.IsEmptyHardState(rd.HardState) {
		r.term, r.vote, r.commit = rd.GetTerm(), ID(rd.GetVote()), rd.GetCommit()
	}
	if rd.SoftState != nil {
		if rd.RaftState == raft.StateCandidate {
			r.silent = 0 // the votes may take as long as the pre-votes did
		}
		r.lead, r.leader = ID(rd.Lead), rd.RaftState == raft.StateLeader
		if r.lead != 0 && r.now < r.hurries {
			r.hurries, r.timeout = 0, r.drawTimeout()
		}
	}
	if !r.leader {
		r.settleAll()
		r.peers = nil
	} else if !led {
		r.reads, r.leaves, r.peers = 0, 0, map[ID]*peer{}
		r.trackPeers()
	}
}

// apply applies a committed entry.
func (r *Replica) apply(e *pb.Entry) {
	if r.failed != nil {
		return
	}
	var err error
	if e.GetType() == pb.EntryNormal {
		err = r.machine.edit(e.GetData())
	} else {
		err = r.applyChange(e)
	}
	if err != nil {
		r.failed = fmt.Errorf("%w: entry %d: %w", ErrFailed, e.GetIndex(), err)
		r.leader, r.lead = false, 0
		r.settleAll()
		return
	}
	r.machine.index, r.machine.term = e.GetIndex(), e.GetTerm()
	r.settleApplied(e)
	if !r.votes(r.id) {
		r.settleAll()
	}
}

// Role says who leads.
type Role struct {
	Leader ID     // 0 if this replica knows none
	Term   uint64 // grows with each leader
	// Leading means that this replica leads and has applied an entry of its own term. So it has also applied all writes
	// that a leader of an earlier term has acknowledged.
	Leading bool
}

func (r *Replica) role() Role { return Role{Leader: r.lead, Term: r.term, Leading: r.leading()} }

func (r *Replica) leading() bool { return r.leader && r.machine.term == r.term && r.votes(r.id) }

// Output is a replica's output for its caller.
type Output struct {
	Messages []Message // to send, in this order
	Settled  []Result  // outcomes of requests; each is reported once
	Role     Role
}

// Output returns the output since the last call. The caller calls it after each batch of other calls.
func (r *Replica) Output() Output {
	r.requestConfirm()
	out := Output{Settled: r.settled, Role: r.role()}
	frozen := r.log.takeFrozen()
	for _, m := range r.messages {
		// Raft has requested the snapshot in this message since the last Output.
		out.Messages = append(out.Messages, Message{
			raft: m, applied: r.machine.index, frozen: frozen[m.GetSnapshot().GetMetadata().GetIndex()],
		})
	}
	r.messages, r.settled = nil, nil
	return out
}

// Freeze returns the present contents, by bucket and key. The caller owns the maps; it must not change the values.
func (r *Replica) Freeze() map[string]map[string][]byte { return r.machine.freeze().buckets }

// Value returns a key's value, or nil if the key does not exist. The caller must not change the value.
func (r *Replica) Value(bucket, key string) []byte { return r.machine.buckets[bucket][key] }

// Err returns an [ErrFailed] once the replica has failed.
func (r *Replica) Err() error { return r.failed }

// quiet is a logger that discards everything. Raft expects Panic and Fatal not to return.
type quiet struct{}

func (quiet) Debug(...any)              {}
func (quiet) Debugf(string, ...any)     {}
func (quiet) Info(...any)               {}
func (quiet) Infof(string, ...any)      {}
func (quiet) Warning(...any)            {}
func (quiet) Warningf(string, ...any)   {}
func (quiet) Error(...any)              {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Fatal(v ...any)            { panic(fmt.Sprint(v...)) }
func (quiet) Fatalf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
func (quiet) Panic(v ...any)            { panic(fmt.Sprint(v...)) }
func (quiet) Panicf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
