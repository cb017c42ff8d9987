package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// ErrMessage means that no replica of the same group can have sent this message. The replica has ignored it. The caller
// should end the connection that it came from.
var ErrMessage = errors.New("replica: a peer sent an invalid message")

// ID names a replica in its group. A replica keeps nothing on disk, so it loses its votes and entries when its process
// ends. The next replica must have a new id. No two processes may ever get the same id, not even from two leaders.
// Valid ids are greater than 0 and less than 2^62.
type ID uint64

// Indexes, terms and ids stay below maxNumber, so that adding to one does not overflow.
const maxNumber = math.MaxUint64 >> 2

func (id ID) valid() bool { return id > 0 && id < maxNumber }

// Message is what one replica sends to another.
type Message struct {
	raft    *pb.Message
	applied uint64   // the index that the sender has applied
	frozen  *machine // the contents of a snapshot to send; Encode adds them
	decoded *machine // the contents of a received snapshot; only Step uses them
}

// From returns the id of the sender.
func (m Message) From() ID { return ID(m.raft.GetFrom()) }

// To returns the id of the replica that must step the message.
func (m Message) To() ID { return ID(m.raft.GetTo()) }

// IsSnapshot reports whether the message contains a whole snapshot; all other messages are small.
func (m Message) IsSnapshot() bool { return m.raft.GetType() == pb.MsgSnap }

// Encode returns the message in the form that Decode reads. Encoding a snapshot takes long. Any goroutine may call
// Encode, even while the replica is in use.
func (m Message) Encode() ([]byte, error) {
	message := m.raft
	if m.frozen != nil {
		message = proto.Clone(m.raft).(*pb.Message) // m.raft has no data yet
		message.Snapshot.Data = m.frozen.encode()
	}
	b, err := proto.MarshalOptions{}.MarshalAppend(binary.AppendUvarint(nil, m.applied), message)
	if err != nil {
		return nil, fmt.Errorf("replica: encode a message: %w", err)
	}
	return b, nil
}

// Limits of a message. The smallest entry has 4 bytes, so no message of a replica has more entries than maxEntries.
const (
	maxAppend  = 256 << 10 // bytes of entries in a message with more than one entry
	maxEntries = maxAppend / 4
	maxChange  = 8 << 10 // bytes that describe members or their change; 64 of each kind need less
	maxContext = 32      // bytes; raft's longest has 16
	maxDepth   = 8       // of nested messages; a snapshot's members are at 4
)

// Numbers of fields in raftpb's Message and, for the last one, Snapshot.
const (
	fieldEntries   = 7
	fieldSnapshot  = 9
	fieldResponses = 14
	fieldMetadata  = 2
)

// Decode reads a message that Encode wrote, possibly on a machine that cannot be trusted. It allocates a few times the
// size of b, less than 150 bytes for each of at most 65,536 entries, and the contents of a snapshot.
func Decode(b []byte) (Message, error) {
	applied, n := binary.Uvarint(b)
	if n <= 0 || applied >= maxNumber {
		return Message{}, fmt.Errorf("%w: no applied index", ErrMessage)
	}
	b = b[n:]
	if err := checkSize(b); err != nil {
		return Message{}, err
	}
	m := &pb.Message{}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true, RecursionLimit: maxDepth}).Unmarshal(b, m); err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	if err := checkForm(m); err != nil {
		return Message{}, err
	}
	decoded := Message{raft: m, applied: applied}
	if decoded.IsSnapshot() {
		var err error
		if decoded.decoded, err = decodeSnapshot(m.GetSnapshot()); err != nil {
			return Message{}, fmt.Errorf("%w: snapshot: %w", ErrMessage, err)
		}
	}
	return decoded, nil
}

// checkSize bounds the memory for reading a message.
func checkSize(b []byte) error {
	entries, metadata := 0, 0 // repeated fields all count, because their parts are merged
	return eachField(b, func(number protowire.Number, value []byte) error {
		switch number {
		case fieldResponses:
			return fmt.Errorf("%w: nested messages", ErrMessage)
		case fieldEntries:
			if entries++; entries > maxEntries {
				return fmt.Errorf("%w: more than %d entries", ErrMessage, maxEntries)
			}
		case fieldSnapshot:
			return eachField(value, func(number protowire.Number, value []byte) error {
				if number != fieldMetadata {
					return nil
				}
				if metadata += len(value); metadata > maxChange {
					return fmt.Errorf("%w: members of more than %d bytes", ErrMessage, maxChange)
				}
				return nil
			})
		}
		return nil
	})
}

// eachField calls f for each field of a protobuf message; value is the content of a length-delimited field.
func eachField(b []byte, f func(number protowire.Number, value []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", ErrMessage, protowire.ParseError(n))
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			return fmt.Errorf("%w: %w", ErrMessage, protowire.ParseError(size))
		}
		var value []byte
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(b[n:])
		}
		if err := f(number, value); err != nil {
			return err
		}
		b = b[n+size:]
	}
	return nil
}

// checkForm checks everything that needs no replica's state. Raft panics if it steps a message with term 0, without a
// sender, from its own replica or to one of its storage threads. It also panics at an odd context, at entries that are
// not consecutive, and at a change of members or a snapshot that is inconsistent in itself.
func checkForm(m *pb.Message) error {
	bad := func(what string) error { return fmt.Errorf("%w: %s of %s", ErrMessage, what, m.GetType()) }
	switch from, to := ID(m.GetFrom()), ID(m.GetTo()); {
	case !from.valid() || !to.valid() || from == to:
		return bad("sender or recipient")
	case m.GetTerm() == 0 || m.GetTerm() >= maxNumber || m.GetLogTerm() > m.GetTerm():
		return bad("term")
	case m.GetIndex() >= maxNumber || m.GetCommit() >= maxNumber || m.GetRejectHint() >= maxNumber:
		return bad("index")
	case len(m.GetResponses()) > 0:
		return bad("responses")
	case len(m.GetEntries()) > 0 && m.GetType() != pb.MsgApp:
		return bad("entries")
	case (m.GetSnapshot() != nil) != (m.GetType() == pb.MsgSnap):
		return bad("snapshot")
	}
	context := len(m.GetContext())
	switch m.GetType() {
	case pb.MsgHeartbeat, pb.MsgHeartbeatResp:
		if context != 0 && context != 8 {
			return bad("context")
		}
	case pb.MsgVote, pb.MsgPreVote:
		if context > maxContext {
			return bad("context")
		}
	case pb.MsgApp:
		return checkEntries(m)
	case pb.MsgSnap:
		meta := m.GetSnapshot().GetMetadata()
		if meta.GetIndex() == 0 || meta.GetIndex() >= maxNumber || meta.GetTerm() == 0 || meta.GetTerm() > m.GetTerm() {
			return bad("snapshot")
		}
		return checkMembers(meta.GetConfState())
	case pb.MsgAppResp, pb.MsgVoteResp, pb.MsgPreVoteResp, pb.MsgTimeoutNow:
	default:
		return fmt.Errorf("%w: type %s", ErrMessage, m.GetType())
	}
	return nil
}

// checkEntries checks the entries of an append message.
func checkEntries(m *pb.Message) error {
	index, term := m.GetIndex(), m.GetLogTerm()
	for _, e := range m.GetEntries() {
		if e.GetIndex() != index+1 || e.GetTerm() < max(term, 1) || e.GetTerm() > m.GetTerm() {
			return fmt.Errorf("%w: entry %d of term %d after entry %d of term %d", ErrMessage,
				e.GetIndex(), e.GetTerm(), index, term)
		}
		index, term = e.GetIndex(), e.GetTerm()
		var err error
		switch e.GetType() {
		case pb.EntryNormal:
			err = readEdits(e.GetData(), func(_, _, _ []byte) {})
		case pb.EntryConfChangeV2:
			_, err = decodeChange(e)
		default:
			err = errors.New("an entry of an unknown type")
		}
		if err != nil {
			return fmt.Errorf("%w: entry %d: %w", ErrMessage, index, err)
		}
	}
	return nil
}

// check returns an error for a message that raft must not step in its present state. Raft panics if a leader claims
// that this replica has entries that it lacks. It panics if a follower acknowledges a read that this leader has not
// requested. A follower that acknowledges entries that do not exist corrupts raft's bookkeeping. Raft ignores the
// content of messages of an earlier term.
func (r *Replica) check(m *pb.Message) error {
	if err := checkForm(m); err != nil {
		return err
	}
	if ID(m.GetTo()) != r.id {
		return fmt.Errorf("%w: it is for replica %d, and this is replica %d", ErrMessage, m.GetTo(), r.id)
	}
	if m.GetTerm() < r.term {
		return nil
	}
	asLeader := r.leader && m.GetTerm() == r.term
	switch m.GetType() {
	case pb.MsgHeartbeat:
		if m.GetCommit() > r.log.last() {
			return fmt.Errorf("%w: replica %d has %d entries of %d: it has lost some, or two replicas have this id",
				ErrMessage, r.id, r.log.last(), m.GetCommit())
		}
	case pb.MsgAppResp:
		if asLeader && !m.GetReject() && m.GetIndex() > r.log.last() {
			return fmt.Errorf("%w: it acknowledges entry %d of %d", ErrMessage, m.GetIndex(), r.log.last())
		}
	case pb.MsgHeartbeatResp:
		if c := m.GetContext(); asLeader && len(c) > 0 && binary.LittleEndian.Uint64(c) > r.reads {
			return fmt.Errorf("%w: it acknowledges a read that was not requested", ErrMessage)
		}
	}
	return nil
}

// Step handles a message of another replica. Decode must have returned the message, and nobody else may use it. The
// error is an [ErrMessage], or an [ErrFailed] if the replica has failed.
func (r *Replica) Step(m Message) error {
	if r.failed != nil {
		return r.failed
	}
	if m.raft == nil {
		return fmt.Errorf("%w: empty", ErrMessage)
	}
	if err := r.check(m.raft); err != nil {
		return err
	}
	if r.now < r.hurries && m.From() == r.ended {
		return nil // the message was on its way when its sender's process ended
	}
	if m.IsSnapshot() && m.raft.GetSnapshot().GetMetadata().GetIndex() > r.commit {
		if m.decoded == nil {
			return fmt.Errorf("%w: a snapshot that was not decoded", ErrMessage)
		}
		r.incoming = m.decoded
	}
	err := r.node.Step(m.raft)
	r.drain()
	r.incoming = nil
	r.heardFrom(m)
	if err != nil && !errors.Is(err, raft.ErrStepPeerNotFound) { // a late answer of a former member
		return fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return nil
}
