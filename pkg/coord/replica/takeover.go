package replica

import (
	"errors"
	"fmt"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
)

// Acknowledged identifies the last entry that the only voter of a group can have revealed to anybody, by the entry's
// index and term.
type Acknowledged struct {
	Leader      ID
	Term, Index uint64
}

// Acknowledged returns the last entry that this replica can have revealed once its caller has handled the latest
// Output. ok is false unless the replica leads, is the only voter, and no change of members is under way. To make
// [Replica.TakeOver] possible, the caller stores the result before it handles an Output, in a place that survives its
// process.
func (r *Replica) Acknowledged() (a Acknowledged, ok bool) {
	if r.failed != nil || !r.leading() || !r.isAlone() {
		return Acknowledged{}, false
	}
	return Acknowledged{Leader: r.id, Term: r.machine.term, Index: r.machine.index}, true
}

// Errors of TakeOver.
var (
	ErrLacksEntries = errors.New("replica: this replica lacks entries of the leader, or has others")
	ErrNoLearner    = errors.New("replica: this replica is not a learner of the leader's group")
)

// TakeOver makes this learner the only voter in place of the leader, whose process must have ended: nothing else may
// ever act as that replica again. a is the value that the leader stored last. The caller must give it to one replica
// only. After an error this replica has promised nothing new, and the caller may try again or give a to another
// replica.
//
// The members change without a vote. That is safe because the leader alone could decide: a group with a second voter
// cannot decide without that voter, and this replica has every entry that the leader has decided.
func (r *Replica) TakeOver(a Acknowledged) error {
	switch {
	case r.failed != nil:
		return r.failed
	case r.leader || !a.Leader.valid() || a.Leader == r.id || r.lead != 0 && r.lead != a.Leader:
		return ErrNoLearner
	}
	last := r.log.last()
	term, err := r.log.Term(last)
	if err != nil || last != a.Index || term != a.Term || r.term != a.Term {
		return fmt.Errorf("%w: it has entries to %d of term %d, not to %d of term %d", ErrLacksEntries, last, term,
			a.Index, a.Term)
	}
	commit := &pb.Message{
		Type: pb.MsgHeartbeat.Enum(), From: new(uint64(a.Leader)), To: new(uint64(r.id)), Term: &a.Term, Commit: &a.Index,
	}
	if err := r.node.Step(commit); err != nil {
		return fmt.Errorf("%w: %w", ErrLacksEntries, err)
	}
	if r.drain(); r.failed != nil {
		return r.failed
	}
	others := slices.Clone(r.machine.members.GetLearners())
	at := slices.Index(others, uint64(r.id))
	if at < 0 || !r.isAlone() || !r.votes(a.Leader) || r.machine.index != a.Index {
		return ErrNoLearner
	}
	m := r.machine.freeze()
	m.members = &pb.ConfState{Voters: []uint64{uint64(r.id)}, Learners: slices.Delete(others, at, at+1)}
	l := &entryLog{machine: m}
	l.begin(m, a.Term+1, a.Index+1)
	node, err := newNode(r.cfg, l)
	if err != nil {
		return err
	}
	r.node, r.log, r.machine = node, l, m
	r.term, r.vote, r.commit, r.lead, r.leader = l.start.GetTerm(), 0, l.start.GetCommit(), 0, false
	r.messages, r.dismissal, r.peers = nil, nil, map[ID]*peer{}
	r.campaign()
	return nil
}
