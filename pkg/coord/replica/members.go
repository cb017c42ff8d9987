package replica

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/confchange"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"
)

// maxMembers limits each set of members.
const maxMembers = 64

// votes reports whether id is a voter. During a change of members, both the old and the new voters count.
func (r *Replica) votes(id ID) bool {
	m := r.machine.members
	return slices.Contains(m.GetVoters(), uint64(id)) || slices.Contains(m.GetVotersOutgoing(), uint64(id))
}

// isMember reports whether id is a voter or a learner.
func (r *Replica) isMember(id ID) bool {
	return r.votes(id) || slices.Contains(r.machine.members.GetLearners(), uint64(id))
}

// isJoint reports whether a change of members is under way, so that decisions need two majorities.
func (r *Replica) isJoint() bool { return len(r.machine.members.GetVotersOutgoing()) > 0 }

// isAlone reports whether this group has only one voter.
func (r *Replica) isAlone() bool { return len(r.machine.members.GetVoters()) == 1 && !r.isJoint() }

// Change makes voters and learners the group's members, by a joint configuration: until the change has ended, decisions
// need a majority of the old voters and a majority of the new voters. Only one change is possible at a time. The id of
// a new member must be higher than all earlier ids of the group, because the votes and acknowledgments of a former
// member are lost with its process. A learner gets all entries and does not vote.
//
// The ticket is settled without an error once the change has ended. A leader that is not among the new voters then
// stops leading; calling TransferTo before the change is faster. A former member must keep running until the voters
// have applied the change (see [Status.SurvivesLoss]): the others may need its vote.
func (r *Replica) Change(voters, learners []ID) (Ticket, error) {
	if err := r.mayLead(); err != nil {
		return 0, err
	}
	if r.isJoint() || r.change.ticket != 0 {
		return 0, ErrBusy
	}
	changes, err := r.changes(voters, learners)
	if err != nil {
		return 0, err
	}
	if len(changes) == 0 {
		t := r.issue()
		r.settle(t, nil)
		return t, nil
	}
	cc := &pb.ConfChangeV2{Transition: pb.ConfChangeTransitionJointExplicit.Enum(), Changes: changes}
	if _, err := tryChange(r.machine.members, cc); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrMembers, err)
	}
	at := r.log.last() + 1
	if err := r.node.ProposeConfChange(cc); err != nil {
		return 0, ErrBusy
	}
	t := r.issue()
	r.change = request{ticket: t, index: at}
	r.drain()
	return t, nil
}

// changes returns the steps from the present members to the given ones.
func (r *Replica) changes(voters, learners []ID) ([]*pb.ConfChangeSingle, error) {
	if len(voters) == 0 || len(voters)+len(learners) > maxMembers {
		return nil, fmt.Errorf("%w: %d voters and %d learners", ErrMembers, len(voters), len(learners))
	}
	var changes []*pb.ConfChangeSingle
	seen := map[ID]bool{}
	add := func(ids []ID, present []uint64, kind pb.ConfChangeType) error {
		for _, id := range ids {
			switch {
			case !id.valid() || seen[id]:
				return fmt.Errorf("%w: id %d is invalid or there twice", ErrMembers, id)
			case !r.isMember(id) && id <= r.machine.highest:
				return fmt.Errorf("%w: new id %d is not higher than %d, which the group has had", ErrMembers, id,
					r.machine.highest)
			case !slices.Contains(present, uint64(id)):
				changes = append(changes, &pb.ConfChangeSingle{Type: kind.Enum(), NodeId: new(uint64(id))})
			}
			seen[id] = true
		}
		return nil
	}
	m := r.machine.members
	if err := add(voters, m.GetVoters(), pb.ConfChangeAddNode); err != nil {
		return nil, err
	}
	if err := add(learners, m.GetLearners(), pb.ConfChangeAddLearnerNode); err != nil {
		return nil, err
	}
	for _, id := range slices.Concat(m.GetVoters(), m.GetLearners()) {
		if !seen[ID(id)] {
			changes = append(changes, &pb.ConfChangeSingle{Type: pb.ConfChangeRemoveNode.Enum(), NodeId: new(id)})
		}
	}
	return changes, nil
}

// proposeLeave proposes the end of the change that is under way, if this replica leads and has not proposed it.
func (r *Replica) proposeLeave() bool {
	if !r.isJoint() || !r.leading() || r.leaves == r.term {
		return false
	}
	if err := r.node.ProposeConfChange(&pb.ConfChangeV2{}); err != nil {
		return false // raft takes no proposals now; every tick tries again
	}
	r.leaves = r.term
	return true
}

// applyChange applies a committed change of members.
//
// Raft's rules allow a removed leader to step down at once. But the others may not know yet that the change has ended.
// Then they could need the vote of the old leader, and would not get it if its log is longer than theirs. So raft
// learns of the removal of its leader only when the voters have applied it; see dismiss. Until then raft continues to
// lead with the joint configuration, which is safe because it includes the new one, and the replica does not lead.
func (r *Replica) applyChange(e *pb.Entry) error {
	cc, err := decodeChange(e)
	if err != nil {
		return err
	}
	members, err := tryChange(r.machine.members, cc)
	if err != nil {
		return err
	}
	highest := r.machine.highest
	for _, c := range cc.GetChanges() {
		if id := ID(c.GetNodeId()); c.GetType() != pb.ConfChangeRemoveNode && !r.isMember(id) {
			if id <= r.machine.highest {
				return fmt.Errorf("id %d was in use before", id)
			}
			highest = max(highest, id)
		}
	}
	if r.leader && cc.LeaveJoint() && !slices.Contains(members.GetVoters(), uint64(r.id)) {
		r.dismissal = cc
	} else {
		members = r.applyMembers(cc) // raft may request a snapshot meanwhile; it gets the machine without this entry
	}
	r.machine.members, r.machine.highest, r.machine.changed = members, highest, e.GetIndex()
	r.asked, r.leaves = 0, 0 // the members that could have answered a Confirm may be gone
	r.trackPeers()
	return nil
}

// dismiss makes raft step down once the voters have applied the change that removed this leader. It waits for a
// majority and for all voters that are not silent: silent voters may be lost. It asks one of the voters to campaign at
// once, so that the group is not without a leader for an election timeout.
func (r *Replica) dismiss() {
	if r.dismissal == nil || !r.leader {
		return
	}
	applied, successor, voters := 0, uint64(0), r.machine.members.GetVoters()
	for _, id := range voters {
		switch p := r.peers[ID(id)]; {
		case p.applied >= r.machine.changed:
			applied, successor = applied+1, cmp.Or(successor, id)
		case r.now-p.heard < r.cfg.ElectionTicks:
			return
		}
	}
	if applied <= len(voters)/2 {
		return
	}
	r.node.TransferLeader(successor)
	r.drain()
	if r.dismissal != nil && r.leader {
		r.applyMembers(r.dismissal)
		r.dismissal = nil
		r.drain()
	}
}

// decodeChange returns the change of members in an entry: one that enters a joint configuration, or one without changes
// that leaves it.
func decodeChange(e *pb.Entry) (*pb.ConfChangeV2, error) {
	cc := &pb.ConfChangeV2{}
	if len(e.GetData()) > maxChange {
		return nil, errors.New("a change of too many members")
	}
	if err := proto.Unmarshal(e.GetData(), cc); err != nil {
		return nil, fmt.Errorf("a change of members: %w", err)
	}
	enters := cc.GetTransition() == pb.ConfChangeTransitionJointExplicit && len(cc.GetChanges()) > 0
	if !enters && !cc.LeaveJoint() {
		return nil, errors.New("a change of members of an unknown kind")
	}
	for _, c := range cc.GetChanges() {
		if !ID(c.GetNodeId()).valid() {
			return nil, errors.New("a change of members with an invalid id")
		}
	}
	return cc, nil
}

// checkMembers returns an error for members that raft cannot have.
func checkMembers(members *pb.ConfState) error {
	if _, err := changer(members); err != nil {
		return fmt.Errorf("%w: members: %w", ErrMessage, err)
	}
	return nil
}

// changer returns raft's own code for changes of the given members. Raft panics if that fails.
func changer(members *pb.ConfState) (confchange.Changer, error) {
	c := confchange.Changer{Tracker: tracker.MakeProgressTracker(1, 0), LastIndex: 1}
	for _, ids := range [][]uint64{
		members.GetVoters(), members.GetVotersOutgoing(), members.GetLearners(), members.GetLearnersNext(),
	} {
		if len(ids) > maxMembers || slices.ContainsFunc(ids, func(id uint64) bool { return !ID(id).valid() }) {
			return c, errors.New("too many, or an invalid id")
		}
	}
	if len(members.GetVoters()) == 0 {
		return c, errors.New("no voter")
	}
	config, progress, err := confchange.Restore(c, members)
	if err != nil {
		return c, err
	}
	c.Tracker.Config, c.Tracker.Progress = config, progress
	return c, members.Equivalent(c.Tracker.ConfState())
}

// tryChange returns the members after a change, or an error if raft would panic.
func tryChange(members *pb.ConfState, cc *pb.ConfChangeV2) (*pb.ConfState, error) {
	c, err := changer(members)
	if err != nil {
		return nil, err
	}
	if cc.LeaveJoint() {
		c.Tracker.Config, c.Tracker.Progress, err = c.LeaveJoint()
	} else {
		c.Tracker.Config, c.Tracker.Progress, err = c.EnterJoint(false, cc.GetChanges()...)
	}
	return c.Tracker.ConfState(), err
}

// TransferTo begins to hand leadership to another voter. Role shows when that voter leads. Until then, and for at most
// ElectionTicks, writes fail with ErrBusy. If the other voter does not lead by then, this replica continues to lead.
func (r *Replica) TransferTo(id ID) error {
	if err := r.mayLead(); err != nil {
		return err
	}
	switch {
	case r.isJoint() || r.change.ticket != 0:
		return ErrBusy // raft would not end the change before the next write
	case id == r.id || !r.votes(id):
		return fmt.Errorf("%w: %d is not another voter", ErrMembers, id)
	}
	r.node.TransferLeader(uint64(id))
	r.drain()
	return nil
}

// Unreachable notes that messages to a replica may be lost, for example when a connection breaks. The leader repeats
// the missing entries once the replica answers. Unreachable does nothing for a snapshot; see SnapshotFailed.
func (r *Replica) Unreachable(id ID) {
	if r.failed != nil || r.peers[id] == nil {
		return
	}
	r.node.ReportUnreachable(uint64(id))
	r.drain()
}

// SnapshotFailed notes that a snapshot has not reached a replica. The leader sends another snapshot once the replica
// answers.
func (r *Replica) SnapshotFailed(id ID) {
	if r.failed == nil && r.peers[id] != nil {
		r.retrySnapshot(id)
	}
}

// SnapshotProgress notes that the caller has just sent a part of a snapshot to a replica, and the replica reads it. So
// the replica is not silent, and SnapshotTicks start again.
func (r *Replica) SnapshotProgress(id ID) {
	if p := r.peers[id]; p != nil {
		p.heard, p.flowing = r.now, r.now
	}
}
