package membership

import (
	"encoding/json"
	"fmt"
	"slices"
)

// The kinds of change.
const (
	joined  = "join"
	left    = "leave"
	evicted = "evict"
)

// change is one entry of the log.
type change struct {
	Kind string `json:"kind"`
	// Member is who joins.
	Member *Record `json:"member,omitempty"`
	// Incarnation is who leaves or is evicted.
	Incarnation uint64 `json:"incarnation,string,omitempty"`
	// By is the incarnation of who wrote the entry.
	By uint64 `json:"by,string"`
}

// roster is what the log amounts to up to one of its entries. A roster is never changed: apply makes another.
type snapshot struct {
	// Version is the number of entries.
	Version int64 `json:"version"`
	// NextID is the id of the next member. Ids of members that are gone are not given again.
	NextID int `json:"next_id"`
	// Floor is the oldest entry that may still be in the store.
	Floor int64 `json:"floor"`
	// Members are in the order of their ids, which is that of their joins.
	Members []Record `json:"members"`
}

// apply returns the roster after the next entry. One that says nothing valid, such as a join under a name that is in use, counts
// and changes nothing: so all who read the log come to the same end.
func (r snapshot) apply(entry []byte) snapshot {
	r.Version++
	var c change
	if json.Unmarshal(entry, &c) != nil {
		return r
	}
	switch c.Kind {
	case joined:
		return r.with(c.Member)
	case left, evicted:
		r.Members = slices.DeleteFunc(slices.Clone(r.Members), func(m Record) bool { return m.Incarnation == c.Incarnation })
	}
	return r
}

func (r snapshot) with(m *Record) snapshot {
	if m == nil || r.has(m.Incarnation) {
		return r
	}
	if _, taken := r.named(m.Name); taken {
		return r
	}
	member := *m
	member.ID = r.NextID
	r.NextID++
	r.Members = append(slices.Clip(r.Members), member)
	return r
}

func (r snapshot) find(incarnation uint64) (Record, bool) {
	return first(r.Members, func(m Record) bool { return m.Incarnation == incarnation })
}

func (r snapshot) has(incarnation uint64) bool {
	_, found := r.find(incarnation)
	return found
}

func (r snapshot) named(name string) (Record, bool) {
	return first(r.Members, func(m Record) bool { return m.Name == name })
}

// others returns all members but one.
func (r snapshot) others(incarnation uint64) []Record {
	return slices.DeleteFunc(slices.Clone(r.Members), func(m Record) bool { return m.Incarnation == incarnation })
}

func first(members []Record, fits func(Record) bool) (Record, bool) {
	i := slices.IndexFunc(members, fits)
	if i < 0 {
		return Record{}, false
	}
	return members[i], true
}

// encode returns what is stored of a change or a roster.
func encode(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("membership: a record that has no JSON: %v", err)) // Its types all have.
	}
	return data
}

// Successor returns the member after self in the ring of members, which are in the order of their ids. It is false where
// there is no other, or self is none of them.
func Successor(members []Record, self uint64) (Record, bool) {
	i := slices.IndexFunc(members, func(m Record) bool { return m.Incarnation == self })
	if i < 0 || len(members) < 2 {
		return Record{}, false
	}
	return members[(i+1)%len(members)], true
}
