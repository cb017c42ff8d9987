package coord

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// The agents' protocol. Either side begins with the preamble: 8 bytes of magic and a u16, the protocol's version, that
// will stay as they are for ever. Then come frames: a u32, the number of bytes after it, of which the first is the kind.
// Integers outside of frames are big-endian; in them, numbers are uvarints, s is a string or bytes behind their
// length, and what stands in braces comes as often as the number before it says.
//
//	kind           to      layout
//	hello          store   flags (1: has a secret), s version, s run id, s nonce
//	challenge      client  flags (1: has a secret), s instance id, s nonce
//	join           store   TTL in ns (0: the store's), s token of a session to resume, flags (1: end it), s proof
//	welcome        client  s instance id, s session id, s token, TTL in ns, flags (1: resumed), s proof
//	refusal        client  code, s line for people; then the connection ends
//
//	keep-alive     store   request
//	commit         store   request, number {s key, create-revision}, number {flags (1: delete, 2: owned), s key, s value, TTL}
//	watch          store   watch, s prefix
//	unwatch        store   watch
//	end            store   request: end the session
//	reply          client  request, code, revision, s line for people
//	batch          client  watch, flags (1: resync, 2: more of it follows), revision,
//	                       number {flags (1: deleted, 2: fresh), s key, create-revision, s value}
//	over           client  code, s line for people: the session, or the store, has ended; then the connection ends
//
//	look           store   s proof
//	seen           client  s version, s run id (empty: any), agents of the run, Unix time in ns, s proof; then the connection ends
//
// The order is hello, challenge, join, welcome; a refusal may come instead of the store's part. Who only wants to see what is there says look
// in place of join, and is given no session. Numbers of requests
// and watches are the client's to choose.
type kind byte

const (
	kindHello kind = 1 + iota
	kindChallenge
	kindJoin
	kindWelcome
	kindRefusal
	kindKeepAlive
	kindCommit
	kindWatch
	kindUnwatch
	kindEnd
	kindReply
	kindBatch
	kindOver
	kindProbe
	kindProbeReply
)

// magic begins with a byte that no torch sends first. What speaks in lines, such as HTTP, answers it at once for its end.
const magic = "\xe5elrun\r\n"

const (
	protocolVersion = 2
	preambleSize    = len(magic) + 2
	frameHeader     = 4
	maxHandshake    = 1 << 10 // bytes of a frame before the welcome
	maxFrame        = 2 << 20 // bytes of any other
	batchFrame      = 64 << 10
)

func appendPreamble(b []byte) []byte {
	return binary.BigEndian.AppendUint16(append(b, magic...), protocolVersion)
}

// beginFrame begins a frame, of which endFrame, with the length of b before it, sets the size.
func beginFrame(b []byte, k kind) []byte { return append(b, 0, 0, 0, 0, byte(k)) }

func endFrame(b []byte, begin int) []byte {
	binary.BigEndian.PutUint32(b[begin:], uint32(len(b)-begin-frameHeader))
	return b
}

// readFrame reads one frame of at most limit bytes. What it returns is the caller's. scratch, at least 5 bytes, is
// for its own use. For a frame that says it is large no more is allocated than twice what has come.
func readFrame(r io.Reader, limit int, scratch []byte) (kind, []byte, error) {
	head := scratch[:frameHeader]
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head)
	if size == 0 || size > uint32(limit) {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes", errMalformed, size)
	}
	const step = 16 << 10
	b := make([]byte, min(int(size), step))
	for have := 0; ; {
		n, err := io.ReadFull(r, b[have:])
		if err != nil {
			return 0, nil, fmt.Errorf("frame that ends after %d of %d bytes: %w", have+n, size, io.ErrUnexpectedEOF)
		}
		if have = len(b); have == int(size) {
			return kind(b[0]), b[1:], nil
		}
		more := make([]byte, min(int(size), 2*have))
		copy(more, b)
		b = more
	}
}

// code says how a request ended, or why a session did.
type resultCode byte

const (
	codeDone resultCode = iota
	codeConflict
	codeLost        // ErrSessionLost
	codeUnavailable // ErrUnavailable
	codeTooLarge
	codeTaken // ErrSessionLost, for this connection
	codeInvalid
	codeFull
)

// codes are the errors that have a code of their own.
var codes = [...]error{
	codeConflict: ErrConflict, codeLost: ErrSessionLost, codeUnavailable: ErrUnavailable, codeTooLarge: ErrTooLarge,
	codeTaken: ErrSessionLost, codeFull: ErrFull,
}

const (
	flagDelete = 1
	flagOwned  = 2

	flagResync = 1
	flagMore   = 2

	flagDeleted = 1
	flagFresh   = 2
)

// commitRequest is a commit on the wire.
type commitRequest struct {
	request int64
	guards  []Guard
	ops     []Op
}

func appendCommit(b []byte, r commitRequest) []byte {
	begin := len(b)
	b = appendNumber(beginFrame(b, kindCommit), r.request)
	b = appendNumber(b, len(r.guards))
	for _, g := range r.guards {
		b = appendNumber(appendString(b, g.Key), g.Create)
	}
	b = appendNumber(b, len(r.ops))
	for _, op := range r.ops {
		var flags byte
		if op.Delete {
			flags |= flagDelete
		}
		if op.Owned {
			flags |= flagOwned
		}
		b = appendBytes(appendString(append(b, flags), op.Key), op.Value)
		b = appendNumber(b, max(op.TTL, 0))
	}
	return endFrame(b, begin)
}

func decodeCommit(body []byte) (r commitRequest, err error) {
	in := &fields{b: body}
	r.request = in.number()
	if n := in.count(2); n > 0 {
		r.guards = make([]Guard, n)
	}
	for i := range r.guards {
		r.guards[i] = Guard{Key: in.string(), Create: Revision(in.number())}
	}
	if n := in.count(4); n > 0 {
		r.ops = make([]Op, n)
	}
	for i := range r.ops {
		flags := in.byte()
		r.ops[i] = Op{
			Delete: flags&flagDelete != 0, Owned: flags&flagOwned != 0,
			Key: in.string(), Value: in.value(), TTL: in.duration(),
		}
	}
	return r, in.end()
}

// value reads a value, which will outlive the message; nil if it is empty.
func (f *fields) value() []byte { return append([]byte(nil), f.bytes()...) }

// reply is the answer to a request; err is nil, or of a code and a line.
type reply struct {
	request  int64
	revision Revision
	code     resultCode
	line     string
}

func appendReply(b []byte, r reply) []byte {
	begin := len(b)
	b = append(appendNumber(beginFrame(b, kindReply), r.request), byte(r.code))
	return endFrame(appendString(appendNumber(b, r.revision), r.line), begin)
}

func decodeReply(body []byte) (r reply, err error) {
	in := &fields{b: body}
	r = reply{request: in.number(), code: resultCode(in.byte()), revision: Revision(in.number()), line: in.string()}
	return r, in.end()
}

// appendNumbered appends a frame that has but the number of a request or watch, and for a watch the prefix.
func appendNumbered(b []byte, k kind, number int64, prefix ...string) []byte {
	begin := len(b)
	b = appendNumber(beginFrame(b, k), number)
	for _, p := range prefix {
		b = appendString(b, p)
	}
	return endFrame(b, begin)
}

// appendOver appends why it is over.
func appendOver(b []byte, c resultCode, line string) []byte {
	begin := len(b)
	return endFrame(appendString(append(beginFrame(b, kindOver), byte(c)), line), begin)
}

// durationLimit keeps what a peer says from overflowing.
const durationLimit = 24 * time.Hour

// batchPart is one frame of a batch: of a large one the events come in several.
type batchPart struct {
	watch int64
	more  bool // it is not the last
	batch Batch
	fresh []bool // one for each event, see core.take
}

// appendBatch appends a batch, in frames of about batchFrame bytes, or of one event that is larger.
func appendBatch(b []byte, watch int64, batch Batch, fresh []bool) []byte {
	for {
		n, size := 0, 0
		for n < len(batch.Events) && (n == 0 || size < batchFrame) {
			size += len(batch.Events[n].Key) + len(batch.Events[n].Value)
			n++
		}
		part := batchPart{watch: watch, more: n < len(batch.Events), batch: batch, fresh: fresh[:n]}
		part.batch.Events = batch.Events[:n]
		b = appendPart(b, part)
		if !part.more {
			return b
		}
		batch.Events, fresh = batch.Events[n:], fresh[n:]
	}
}

func appendPart(b []byte, p batchPart) []byte {
	begin := len(b)
	b = appendNumber(beginFrame(b, kindBatch), p.watch)
	var flags byte
	if p.batch.Resync {
		flags |= flagResync
	}
	if p.more {
		flags |= flagMore
	}
	b = appendNumber(append(b, flags), p.batch.Revision)
	b = appendNumber(b, len(p.batch.Events))
	for i, e := range p.batch.Events {
		flags := byte(0)
		if e.Deleted {
			flags |= flagDeleted
		}
		if p.fresh[i] {
			flags |= flagFresh
		}
		b = appendString(append(b, flags), e.Key)
		b = appendBytes(appendNumber(b, e.Create), e.Value)
	}
	return endFrame(b, begin)
}

func decodePart(body []byte) (p batchPart, err error) {
	in := &fields{b: body}
	p.watch = in.number()
	flags := in.byte()
	p.batch.Resync, p.more = flags&flagResync != 0, flags&flagMore != 0
	p.batch.Revision = Revision(in.number())
	if n := in.count(4); n > 0 {
		p.batch.Events, p.fresh = make([]Event, n), make([]bool, n)
	}
	for i := range p.batch.Events {
		flags := in.byte()
		p.fresh[i] = flags&flagFresh != 0
		p.batch.Events[i] = Event{
			Deleted: flags&flagDeleted != 0, Key: in.string(), Create: Revision(in.number()), Value: in.value(),
		}
	}
	return p, in.end()
}
