package replica

import (
	"maps"
	"math"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// peer is what a leader knows of another member.
type peer struct {
	heard   int    // the tick of its last answer
	answers bool   // it has answered in this term
	applied uint64 // the index that it has applied, at least
	target  uint64 // the commit index that it has to reach next
	reached int    // the tick at which it had reached the target before
	flowing int    // the last tick at which no snapshot was on its way to it
}

// trackPeers makes peers the other members, as seen by a leader.
func (r *Replica) trackPeers() {
	if !r.leader {
		return
	}
	m := r.machine.members
	present := map[ID]*peer{}
	for _, id := range slices.Concat(m.GetVoters(), m.GetVotersOutgoing(), m.GetLearners()) {
		id := ID(id)
		if id == r.id {
			continue
		}
		if present[id] = r.peers[id]; present[id] == nil {
			present[id] = &peer{heard: r.now, reached: r.now, flowing: r.now}
		}
	}
	r.peers = present
}

// watchPeers notes how far the other members are. It has raft send a snapshot again that was not acknowledged for
// SnapshotTicks: raft itself would wait for ever.
func (r *Replica) watchPeers() {
	var lost []ID
	r.node.WithProgress(func(id uint64, _ raft.ProgressType, progress tracker.Progress) {
		p := r.peers[ID(id)]
		if p == nil {
			return
		}
		if progress.Match >= p.target {
			p.target, p.reached = r.commit, r.now
		}
		if progress.State != tracker.StateSnapshot {
			p.flowing = r.now
		} else if r.now-p.flowing >= r.cfg.SnapshotTicks {
			p.flowing = r.now
			lost = append(lost, ID(id))
		}
	})
	for _, id := range lost {
		r.retrySnapshot(id)
	}
	r.dismiss()
}

// retrySnapshot ends raft's wait for the acknowledgment of a snapshot, if raft waits. It is notified that the snapshot
// has arrived: so it asks first whether the follower has it, because the acknowledgment may be what was lost.
func (r *Replica) retrySnapshot(id ID) {
	r.node.ReportSnapshot(uint64(id), raft.SnapshotFinish)
	r.drain()
}

// onItsWay returns the lowest index of the snapshots that are on their way to a follower, or the highest number.
func (r *Replica) onItsWay() uint64 {
	lowest := uint64(math.MaxUint64)
	if !r.leader {
		return lowest
	}
	r.node.WithProgress(func(_ uint64, _ raft.ProgressType, progress tracker.Progress) {
		if progress.State == tracker.StateSnapshot {
			lowest = min(lowest, progress.PendingSnapshot)
		}
	})
	return lowest
}

// Behind returns the other voters, in order, that have answered nothing for the given number of ticks, or that lack
// entries which were committed that long ago. It returns none unless the replica leads.
func (r *Replica) Behind(ticks int) []ID {
	var behind []ID
	for _, id := range slices.Sorted(maps.Keys(r.peers)) {
		if p := r.peers[id]; r.votes(id) && r.now-min(p.heard, p.reached) >= ticks {
			behind = append(behind, id)
		}
	}
	return behind
}

// Member is another member, as seen by the leader.
type Member struct {
	ID      ID
	Voter   bool
	Match   uint64 // the index up to which it has the entries
	Applied uint64 // the index that it has applied, at least
	Silent  int    // ticks since its last answer to a message of the leader, or since the leader leads
	Answers bool   // it has answered this leader
}

// Status describes a replica.
type Status struct {
	Role
	Applied  uint64 // the index of the last applied entry
	Commit   uint64 // the index of the last committed entry that this replica knows
	Voters   []ID
	Outgoing []ID // the old voters, while a change of members is under way
	Learners []ID
	Changing bool   // a leader's Change has not ended; it may be in the log and not applied yet
	Changed  uint64 // the index of the entry that made the members what they are, or a later one
	Highest  ID     // the highest id that the group has had; a new member's is higher
	Members  []Member
}

// Status returns the replica's state. Only a leader has Members.
func (r *Replica) Status() Status {
	m := r.machine.members
	s := Status{
		Role: r.role(), Applied: r.machine.index, Commit: r.commit, Voters: ids(m.GetVoters()),
		Outgoing: ids(m.GetVotersOutgoing()), Learners: ids(m.GetLearners()), Changed: r.machine.changed,
		Highest: r.machine.highest, Changing: r.isJoint() || r.change.ticket != 0,
	}
	if !r.leader {
		return s
	}
	r.node.WithProgress(func(id uint64, kind raft.ProgressType, progress tracker.Progress) {
		if p := r.peers[ID(id)]; p != nil {
			s.Members = append(s.Members, Member{
				ID: ID(id), Voter: kind == raft.ProgressTypePeer, Match: progress.Match, Applied: p.applied,
				Silent: r.now - p.heard, Answers: p.answers,
			})
		}
	})
	return s
}

// All returns the ids of all members. An id may occur twice while a change of members is under way.
func (s Status) All() []ID { return slices.Concat(s.Voters, s.Outgoing, s.Learners) }

// SurvivesLoss reports whether the group can go on after the loss of any one voter, as far as a leader knows: there are
// three or more, no change of members is under way, and each voter has answered the leader and has applied the latest
// change. A voter that has not needs a majority of the old voters to be elected, and may keep the others from being
// elected. It holds until the next Change.
func (s Status) SurvivesLoss() bool {
	if !s.Leading || len(s.Voters) < 3 || s.Changing {
		return false
	}
	return !slices.ContainsFunc(s.Members, func(m Member) bool { return m.Voter && (!m.Answers || m.Applied < s.Changed) })
}

func ids(numbers []uint64) []ID {
	var ids []ID
	for _, n := range numbers {
		ids = append(ids, ID(n))
	}
	return ids
}
