package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

// A connection between members carries frames in one direction: a u32 with the number of bytes after it, big-endian,
// and a byte for the kind. Numbers are uvarints; s marks a string after its length.
//
//	hello    s address of the sender, s instance id of the group; the first frame
//	adopt    id: the receiver joins the group as this replica
//	raft     a message of package replica
//	leave    id: the sender, this replica, will end soon
//	removed  id: the receiver, this replica, is no member any more
//	ask      id: the sender, this replica, hears from no leader: is it still a member?
//	announce s label: the sender leads a group that keeps the store
//	relay    s address, s instance id, s label: the process at that address leads a group that keeps the store
//	takeover s instance id, id, term, index: the process of that only voter has ended; the receiver takes its place, and
//	         answers on the connection
//	answer   s label: why not; empty if it has
//	reach    id, then s address of each of some members: which of them does the receiver, this replica, not reach? It
//	         answers on the connection
//	missed   s address, s reason of each that it does not reach
type frameKind byte

const (
	frameHello frameKind = 1 + iota
	frameAdopt
	frameRaft
	frameLeave
	frameRemoved
	frameAsk
	frameAnnounce
	frameRelay
	frameTakeOver
	frameAnswer
	frameReach
	frameMissed
)

const (
	maxFrame   = 1 << 30  // the largest frame is a snapshot of the store's contents
	maxMessage = 24 << 20 // of other raft messages: above replica.Config.MaxWrite
	maxSmall   = 1 << 20  // of raft messages of which any number may be read at once
	maxHello   = 4 << 10  // of all other frames
)

var errFrame = errors.New("a member sent a malformed frame")

// frame is one frame; which fields it has depends on the kind.
type frame struct {
	kind     frameKind
	addr     string
	instance string
	id       replica.ID
	label    string
	texts    []string
	message  []byte
}

func (f frame) encode() []byte {
	b := []byte{0, 0, 0, 0, byte(f.kind)}
	switch f.kind {
	case frameHello:
		b = appendString(appendString(b, f.addr), f.instance)
	case frameAdopt, frameLeave, frameRemoved, frameAsk:
		b = binary.AppendUvarint(b, uint64(f.id))
	case frameAnnounce, frameAnswer:
		b = appendString(b, f.label)
	case frameRelay:
		b = appendString(appendString(appendString(b, f.addr), f.instance), f.label)
	case frameRaft, frameTakeOver:
		b = append(b, f.message...)
	case frameReach:
		b = appendStrings(binary.AppendUvarint(b, uint64(f.id)), f.texts)
	case frameMissed:
		b = appendStrings(b, f.texts)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendStrings(b []byte, texts []string) []byte {
	for _, s := range texts {
		b = appendString(b, s)
	}
	return b
}

// readFrame reads one frame of at most limit bytes. It allocates at most about twice the bytes that have arrived,
// whatever size the frame's header claims.
func readFrame(r io.Reader, limit int) (frame, error) {
	return readAdmitted(r, func(_ frameKind, size int) bool { return size <= limit })
}

// readAdmitted is readFrame with a limit by kind and size: admit reports whether to read the frame.
func readAdmitted(r io.Reader, admit func(kind frameKind, size int) bool) (frame, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	size := int(binary.BigEndian.Uint32(head[:]))
	if size == 0 || !admit(frameKind(head[4]), size) {
		return frame{}, fmt.Errorf("%w: %d bytes", errFrame, size)
	}
	b := append(make([]byte, 0, min(size, 4<<10)), head[4])
	for len(b) < size {
		if len(b) == cap(b) {
			bigger := make([]byte, len(b), min(size, 2*cap(b)))
			copy(bigger, b)
			b = bigger
		}
		n, err := io.ReadFull(r, b[len(b):cap(b)])
		if b = b[:len(b)+n]; err != nil {
			return frame{}, err
		}
	}
	return decodeFrame(b)
}

// decodeFrame decodes a frame without its size.
func decodeFrame(b []byte) (frame, error) {
	f := frame{kind: frameKind(b[0])}
	d := decoder{rest: b[1:], ok: true}
	switch f.kind {
	case frameHello:
		f.addr, f.instance = d.text(), d.text()
	case frameAdopt, frameLeave, frameRemoved, frameAsk:
		f.id = replica.ID(d.number())
	case frameAnnounce, frameAnswer:
		f.label = d.text()
	case frameRelay:
		f.addr, f.instance, f.label = d.text(), d.text(), d.text()
	case frameRaft, frameTakeOver:
		f.message, d.rest = d.rest, nil
	case frameReach:
		f.id, f.texts = replica.ID(d.number()), d.texts()
	case frameMissed:
		f.texts = d.texts()
	default:
		d.ok = false
	}
	if !d.done() {
		return frame{}, fmt.Errorf("%w: kind %d", errFrame, f.kind)
	}
	return f, nil
}

// decoder reads the fields of a frame.
type decoder struct {
	rest []byte
	ok   bool // false once a field was malformed
}

// done reports whether all fields were well-formed and nothing is left.
func (d *decoder) done() bool { return d.ok && len(d.rest) == 0 }

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 {
		d.ok, d.rest = false, nil
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) text() string {
	n := d.number()
	if n > uint64(len(d.rest)) {
		d.ok = false
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

// texts reads all strings that are left.
func (d *decoder) texts() (texts []string) {
	for d.ok && len(d.rest) > 0 {
		texts = append(texts, d.text())
	}
	return texts
}
