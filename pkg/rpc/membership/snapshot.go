package membership

import (
	"encoding/json"
	"fmt"
	"slices"
)

// These are the kinds of change.
const (
	joined  = "join"
	left    = "leave"
	evicted = "evict"
)

// change is one entry of the log.
type change struct {
	Kind string `json:"kind"`
	// Member is the worker that joins.
	Member *Record `json:"member,omitempty"`
	// Incarnation is that of the member that leaves or is evicted.
	Incarnation uint64 `json:"incarnation,string,omitempty"`
	// By is the incarnation of the writer of the entry.
	By uint64 `json:"by,string"`
}

// snapshot is the result of the log up to one entry. A snapshot is immutable: apply returns a new one.
type snapshot struct {
	// Version is the number of entries.
	Version int64 `json:"version"`
	// NextID is the id of the next member. IDs are never reused.
	NextID int `json:"next_id"`
	// Floor is the oldest entry that may still be in the store.
	Floor int64 `json:"floor"`
	// Members are in ascending order of their ids, which is the order of their joins.
	Members []Record `json:"members"`
}

// apply returns the snapshot after the next entry. An invalid entry, such as a join with a name in use, raises the
// version and changes nothing else. So all readers of the log get the same result.
func (s snapshot) apply(entry []byte) snapshot {
	s.Version++
	var c change
	if json.Unmarshal(entry, &c) != nil {
		return s
	}
	switch c.Kind {
	case joined:
		return s.with(c.Member)
	case left, evicted:
		s.Members = s.others(c.Incarnation)
	}
	return s
}

func (s snapshot) with(m *Record) snapshot {
	if m == nil || s.has(m.Incarnation) {
		return s
	}
	if _, taken := s.named(m.Name); taken {
		return s
	}
	member := *m
	member.ID = s.NextID
	s.NextID++
	s.Members = append(slices.Clip(s.Members), member)
	return s
}

func (s snapshot) find(incarnation uint64) (Record, bool) {
	return first(s.Members, func(m Record) bool { return m.Incarnation == incarnation })
}

func (s snapshot) has(incarnation uint64) bool {
	_, found := s.find(incarnation)
	return found
}

func (s snapshot) named(name string) (Record, bool) {
	return first(s.Members, func(m Record) bool { return m.Name == name })
}

// others returns all members except the one with this incarnation.
func (s snapshot) others(incarnation uint64) []Record {
	return slices.DeleteFunc(slices.Clone(s.Members), func(m Record) bool { return m.Incarnation == incarnation })
}

func first(members []Record, match func(Record) bool) (Record, bool) {
	i := slices.IndexFunc(members, match)
	if i < 0 {
		return Record{}, false
	}
	return members[i], true
}

// encode returns the JSON of value, which is a change, a snapshot or another type of this package.
func encode(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("membership: a record that has no JSON: %v", err)) // All types that are stored have JSON.
	}
	return data
}

// Successor returns the member after self in the ring of members, which are in ascending order of their ids. It returns
// false if self is not a member or is the only one.
func Successor(members []Record, self uint64) (Record, bool) {
	i := slices.IndexFunc(members, func(m Record) bool { return m.Incarnation == self })
	if i < 0 || len(members) < 2 {
		return Record{}, false
	}
	return members[(i+1)%len(members)], true
}
