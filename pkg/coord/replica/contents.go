package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"iter"
	"maps"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Edit sets or deletes one key of a bucket.
type Edit struct {
	Bucket string
	Key    string
	Value  []byte // nil deletes the key
}

// An edit's kind is its first byte.
const (
	kindPut    = 1
	kindDelete = 2
)

var errEdits = errors.New("the edits are malformed")

// appendEdits appends the binary form of edits: for each its kind, bucket, key and value, each with its length.
func appendEdits(b []byte, edits iter.Seq[Edit]) []byte {
	for e := range edits {
		kind := byte(kindPut)
		if e.Value == nil {
			kind = kindDelete
		}
		b = append(b, kind)
		b = append(binary.AppendUvarint(b, uint64(len(e.Bucket))), e.Bucket...)
		b = append(binary.AppendUvarint(b, uint64(len(e.Key))), e.Key...)
		if e.Value != nil {
			b = append(binary.AppendUvarint(b, uint64(len(e.Value))), e.Value...)
		}
	}
	return b
}

// readEdits calls f with the parts of each edit in b. The parts share b's memory; value is nil if the edit deletes the
// key.
func readEdits(b []byte, f func(bucket, key, value []byte)) error {
	ok := true
	field := func() []byte {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			ok, b = false, nil
			return nil
		}
		end := n + int(size)
		part := b[n:end:end]
		b = b[end:]
		return part
	}
	for len(b) > 0 {
		kind := b[0]
		b = b[1:]
		bucket, key := field(), field()
		var value []byte
		if kind == kindPut {
			value = field()
		}
		if !ok || kind != kindPut && kind != kindDelete {
			return errEdits
		}
		f(bucket, key, value)
	}
	return nil
}

// machine is the state that the applied entries have produced: the contents of the store and the group's members.
type machine struct {
	buckets map[string]map[string][]byte
	members *pb.ConfState
	changed uint64 // the index of the entry or snapshot that last changed members
	highest ID     // the highest id that the group has ever had
	index   uint64 // of the last applied entry
	term    uint64 // of the last applied entry
}

func newMachine() *machine {
	return &machine{buckets: map[string]map[string][]byte{}, members: &pb.ConfState{}}
}

// edit applies the edits in data.
func (m *machine) edit(data []byte) error {
	return readEdits(data, func(bucket, key, value []byte) {
		keys := m.buckets[string(bucket)]
		switch {
		case value == nil && keys == nil:
		case value == nil:
			if delete(keys, string(key)); len(keys) == 0 {
				delete(m.buckets, string(bucket))
			}
		case keys == nil:
			m.buckets[string(bucket)] = map[string][]byte{string(key): bytes.Clone(value)}
		default:
			keys[string(key)] = bytes.Clone(value) // a copy, so that the value does not hold the whole entry in memory
		}
	})
}

// all returns the contents in the order of buckets and keys.
func (m *machine) all() iter.Seq[Edit] {
	return func(yield func(Edit) bool) {
		for _, bucket := range slices.Sorted(maps.Keys(m.buckets)) {
			keys := m.buckets[bucket]
			for _, key := range slices.Sorted(maps.Keys(keys)) {
				if !yield(Edit{Bucket: bucket, Key: key, Value: keys[key]}) {
					return
				}
			}
		}
	}
}

// encode returns the data of a snapshot: the highest id and the contents. Equal machines have equal data.
func (m *machine) encode() []byte {
	return appendEdits(binary.AppendUvarint(nil, uint64(m.highest)), m.all())
}

// freeze returns a machine that stays as this one is now. Values never change, so the two share them.
func (m *machine) freeze() *machine {
	frozen := *m
	frozen.members = proto.Clone(m.members).(*pb.ConfState)
	frozen.buckets = make(map[string]map[string][]byte, len(m.buckets))
	for bucket, keys := range m.buckets {
		frozen.buckets[bucket] = maps.Clone(keys)
	}
	return &frozen
}

// header returns the machine's snapshot without its data.
func (m *machine) header() *pb.Snapshot {
	return &pb.Snapshot{Metadata: &pb.SnapshotMetadata{
		ConfState: proto.Clone(m.members).(*pb.ConfState), Index: new(m.index), Term: new(m.term),
	}}
}

// decodeSnapshot returns the machine of a snapshot whose members are valid.
func decodeSnapshot(s *pb.Snapshot) (*machine, error) {
	meta := s.GetMetadata()
	m := newMachine()
	m.members = proto.Clone(meta.GetConfState()).(*pb.ConfState)
	m.index, m.term = meta.GetIndex(), meta.GetTerm()
	m.changed = m.index // an earlier entry changed the members; its index is not known
	highest, n := binary.Uvarint(s.GetData())
	if n <= 0 || !ID(highest).valid() {
		return nil, errEdits
	}
	m.highest = ID(highest)
	return m, m.edit(s.GetData()[n:])
}
