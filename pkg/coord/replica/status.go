package replica

import (
	"maps"
	"math"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// peer is a leader's record of another member.
type peer struct {
	heard   int    // the tick of its last answer
	answers bool   // it has answered in this term
	applied uint64 // a lower bound of the index that it has applied
	target  uint64 // the commit index that it has to reach next
	reached int    // the tick at which it had reached the target before
	flowing int    // the last tick at which no snapshot was on its way to it
}

// trackPeers updates peers: a leader's records of all other members.
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

// watchPeers records the progress of the other members. It makes raft repeat a snapshot that was not acknowledged
// within SnapshotTicks: raft itself would wait forever.
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

// retrySnapshot ends raft's wait for the acknowledgment of a snapshot, if raft waits. It reports to raft that the
// snapshot has arrived. So raft first asks whether the follower has it, because only the acknowledgment may have been
// lost.
func (r *Replica) retrySnapshot(id ID) {
	r.node.ReportSnapshot(uint64(id), raft.SnapshotFinish)
	r.drain()
}

// onItsWay returns the lowest index of the snapshots on their way to followers, or math.MaxUint64 without any.
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

// Behind returns, in order, the other voters that have not answered for the given number of ticks or that lack entries
// committed that long ago. It returns none unless the replica leads.
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
	Applied uint64 // a lower bound of the index that it has applied
	Silent  int    // ticks since its last answer to the leader, or since the leader began to lead
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
	Changed  uint64 // the index of the entry that last changed the members, or a later index
	Highest  ID     // the highest id that the group has ever had; the id of a new member is higher
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

// SurvivesLoss reports whether the group can survive the loss of any one voter, as far as a leader knows. It requires
// three or more voters, no change of members under way, and that each voter has answered the leader and has applied the
// latest change. A voter that has not applied the change needs a majority of the old voters to be elected, and may keep
// the others from being elected. The result holds until the next Change.
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
