package rounds

import (
	"fmt"
	"slices"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// A member whose workers have all exited with 0 needs no agent any more: its session may end while the others still
// run. The leader records such members, so that a later leader does not take them for lost. Unlike a departure, a
// success does not keep the round from running again if another member fails. Then the workers of a member whose agent
// is still there run again, and a member whose agent has gone is missing.
//
// In a large job thousands of nodes finish at about the same time. So a record has SuccessChunk members, and is written
// once for all of them that have finished since the leader's last decision.

// SuccessChunk is how many ranks a record covers, one bit each.
const SuccessChunk = 512

// Successes records which members of a round have succeeded.
type Successes struct {
	Round int `json:"round"`
	// Session is that of rank 0: an earlier run may have had a round of the same number.
	Session coord.SessionID `json:"session"`
	Chunk   int             `json:"chunk"` // the first rank is Chunk*SuccessChunk
	Bits    []byte          `json:"bits"`  // the lowest bit of the first byte is the first rank
}

// SuccessKey returns the key of the record that has a rank.
func SuccessKey(round, rank int) string {
	return fmt.Sprintf("%s%d/%d", PrefixSucceeded, round, rank/SuccessChunk)
}

// IsOf reports whether the successes are those of the round of r.
func (s *Successes) IsOf(r *Record) bool {
	return s.Round == r.Round && len(r.Members) > 0 && s.Session == r.Members[0].ID
}

// Has reports whether a rank, which must be in this chunk, has succeeded.
func (s *Successes) Has(rank int) bool {
	at := rank % SuccessChunk
	return at/8 < len(s.Bits) && s.Bits[at/8]&(1<<(at%8)) != 0
}

// recordSuccesses records the members that have succeeded since the last call.
func (l *Leader) recordSuccesses() {
	r := &l.round
	var changed []int
	for _, rank := range r.succeeded {
		chunk := rank / SuccessChunk
		if r.successes[chunk] == nil {
			put(&r.successes, chunk, make([]byte, SuccessChunk/8))
		}
		r.successes[chunk][rank%SuccessChunk/8] |= 1 << (rank % 8)
		if !slices.Contains(changed, chunk) {
			changed = append(changed, chunk)
		}
	}
	r.succeeded = nil
	for _, chunk := range changed {
		l.writes = append(l.writes, Write{Key: SuccessKey(l.record.Round, chunk*SuccessChunk), Value: Successes{
			Round: l.record.Round, Session: l.record.Members[0].ID, Chunk: chunk,
			Bits: slices.Clone(r.successes[chunk]),
		}})
	}
}

// takeOverSuccesses marks the members of the recorded round that have succeeded.
func (l *Leader) takeOverSuccesses(saved []Successes) {
	r := &l.round
	for _, s := range saved {
		first := s.Chunk * SuccessChunk
		if l.outcome != nil || !s.IsOf(&l.record) || s.Chunk < 0 || len(s.Bits) != SuccessChunk/8 {
			l.writes = append(l.writes, Write{Key: SuccessKey(s.Round, first)})
			continue
		}
		put(&r.successes, s.Chunk, slices.Clone(s.Bits))
		for rank := first; rank < min(first+SuccessChunk, len(r.members)); rank++ {
			if m := &r.members[rank]; s.Has(rank) && m.status == active {
				r.setStatus(m, done)
			}
		}
	}
}

// forgetSuccesses deletes the records of a round.
func (l *Leader) forgetSuccesses(round int, records map[int][]byte) {
	for chunk := range records {
		l.writes = append(l.writes, Write{Key: SuccessKey(round, chunk*SuccessChunk)})
	}
}

// announceSuccesses informs the nodes of the next round of the members of the last one that had succeeded and whose
// session has ended: their success does not count any more.
func (l *Leader) announceSuccesses() {
	var nodes []string
	for rank, m := range l.round.members {
		if m.status == done && m.participant == nil {
			nodes = append(nodes, l.nodeOf(rank))
		}
	}
	if len(nodes) > 0 {
		l.announcements = append(l.announcements, fmt.Sprintf("the round runs again although the workers of %s had "+
			"finished: the agent there has ended, and a new one may take its place", joinSome(nodes, ", ")))
	}
}
