package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// entryLog holds the entries that are not applied yet and some of the applied ones. It implements [raft.Storage]. Raft
// reads every entry back from it, so an entry is stable for raft as soon as it is in memory.
type entryLog struct {
	machine *machine      // its state is the snapshot
	frozen  []*machine    // the contents of the snapshots that raft has requested since the last takeFrozen
	start   *pb.HardState // the state of a new replica; nil if it has no group
	index   uint64        // the index of the last dropped entry
	term    uint64        // the term of the last dropped entry
	entries []*pb.Entry
	size    int // bytes of entries, roughly
}

const (
	entrySize   = 128 // bytes of memory that an entry costs in addition to its data
	limitFactor = 8   // a log may exceed its limit by this factor while a snapshot is on its way
)

func sizeOf(e *pb.Entry) int { return entrySize + len(e.GetData()) }

// last returns the index of the last entry.
func (l *entryLog) last() uint64 { return l.index + uint64(len(l.entries)) }

// append adds entries. They replace the entries with the same or a higher index.
func (l *entryLog) append(entries []*pb.Entry) {
	if len(entries) == 0 {
		return
	}
	keep := entries[0].GetIndex() - l.index - 1
	for _, e := range l.entries[keep:] {
		l.size -= sizeOf(e)
	}
	for _, e := range entries {
		l.size += sizeOf(e)
	}
	// The capacity ends at keep if entries are replaced: raft may still hold slices of those.
	if keep < uint64(len(l.entries)) {
		l.entries = l.entries[:keep:keep]
	}
	l.entries = append(l.entries, entries...)
}

// compact drops the oldest applied entries if the log is larger than limit, until its size is half of limit. The
// remaining entries let followers that are a little behind continue without a snapshot. Entries after keep remain until
// the log is limitFactor times as large as limit: a follower that is receiving a snapshot will need them.
func (l *entryLog) compact(limit int, keep uint64) {
	if l.size <= limit {
		return
	}
	drop := 0
	for ; drop < len(l.entries) && l.size > limit/2; drop++ {
		e := l.entries[drop]
		if e.GetIndex() > l.machine.index || e.GetIndex() > keep && l.size <= limitFactor*limit {
			break
		}
		l.size -= sizeOf(e)
		l.index, l.term = e.GetIndex(), e.GetTerm()
	}
	if drop > 0 {
		l.entries = slices.Clone(l.entries[drop:]) // a new array, so that the dropped entries are freed
	}
}

// reset empties the log and makes m, the contents of a snapshot, its machine.
func (l *entryLog) reset(m *machine) {
	l.machine, l.index, l.term, l.entries, l.size = m, m.index, m.term, nil, 0
}

// begin makes the log and its machine start after an entry with this term and index, which no replica has. So each
// other replica gets its first state, including the members, from a snapshot.
func (l *entryLog) begin(m *machine, term, index uint64) {
	m.term, m.index, m.changed = term, index, index
	l.start = &pb.HardState{Term: &term, Commit: &index}
	l.reset(m)
}

// InitialState implements [raft.Storage].
func (l *entryLog) InitialState() (*pb.HardState, *pb.ConfState, error) {
	return l.start, proto.Clone(l.machine.members).(*pb.ConfState), nil
}

// Entries implements [raft.Storage].
func (l *entryLog) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	if lo <= l.index {
		return nil, raft.ErrCompacted
	}
	if hi > l.last()+1 {
		return nil, raft.ErrUnavailable
	}
	entries := l.entries[lo-l.index-1 : hi-l.index-1]
	n, size := 0, uint64(0)
	for _, e := range entries {
		if size += uint64(proto.Size(e)); n > 0 && size > maxSize {
			break
		}
		n++
	}
	return entries[:n:n], nil
}

// Term implements [raft.Storage].
func (l *entryLog) Term(i uint64) (uint64, error) {
	switch {
	case i < l.index:
		return 0, raft.ErrCompacted
	case i == l.index:
		return l.term, nil
	case i > l.last():
		return 0, raft.ErrUnavailable
	}
	return l.entries[i-l.index-1].GetTerm(), nil
}

// LastIndex implements [raft.Storage].
func (l *entryLog) LastIndex() (uint64, error) { return l.last(), nil }

// FirstIndex implements [raft.Storage].
func (l *entryLog) FirstIndex() (uint64, error) { return l.index + 1, nil }

// Snapshot implements [raft.Storage]. Raft requests it only if a follower needs one. Raft may do so while an entry is
// being applied; the snapshot is then the state before that entry. The snapshot has no data: Message.Encode adds the
// data from frozen, so that encoding, which takes long, does not delay the replica.
func (l *entryLog) Snapshot() (*pb.Snapshot, error) {
	if n := len(l.frozen); n == 0 || l.frozen[n-1].index != l.machine.index {
		l.frozen = append(l.frozen, l.machine.freeze())
	}
	return l.machine.header(), nil
}

// takeFrozen returns the contents for the snapshot messages, by index, and forgets them.
func (l *entryLog) takeFrozen() map[uint64]*machine {
	taken := map[uint64]*machine{}
	for _, m := range l.frozen {
		taken[m.index] = m
	}
	l.frozen = nil
	return taken
}
