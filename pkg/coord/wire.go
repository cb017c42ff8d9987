package coord

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// The agents' protocol. Each side begins with the preamble: 8 bytes of magic and a u16, the protocol's version. The
// preamble never changes. Then comes TLS 1.3, and in it frames: a u32 with the number of bytes after it, of which the
// first is the kind. Between its preamble and TLS, a busy store sends one byte of 0 each second: the client has to
// wait. Integers outside of frames are big-endian. In a frame, numbers are uvarints, s marks a string or bytes after
// their length, and braces repeat as often as the number before them says.
//
//	kind           to      layout
//	hello          store   flags (1: has a secret), role, s version, s run id
//	challenge      client  flags (1: has a secret), s instance id, s proof
//	join           store   TTL in ns (0: the store's), s token of a session to resume, flags (1: end it), s proof
//	welcome        client  s instance id, s session id, s token, TTL in ns, flags (1: resumed)
//	refusal        client  code, s message for people; then the connection ends
//
//	keep-alive     store   request
//	commit         store   request, number {s key, create-revision},
//	                       number {flags (1: delete, 2: owned), s key, s value, TTL}
//	watch          store   watch, s prefix
//	unwatch        store   watch
//	end            store   request: end the session
//	reply          client  request, code, revision, s message for people
//	batch          client  watch, flags (1: resync, 2: more of it follows), revision,
//	                       number {flags (1: deleted, 2: fresh), s key, create-revision, s value}
//	exit notice    client  code, s message for people: the session or the store has ended; then the connection ends
//
//	probe request  store   s proof
//	probe reply    client  s version, s run id (empty: any), agents of the run, Unix time in ns;
//	                       then the connection ends
//
// The message of a refusal because another member of the store's group serves may end with that member's address; see
// elsewhereMessage.
//
// The handshake is hello, challenge, join, welcome. The store may send a refusal instead of its part; the client may
// send one instead of join. A server of another version sends its preamble and a refusal without TLS. A client that
// only probes the store sends a probe request instead of join and gets no session. The client chooses the numbers of
// requests and watches.
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
	kindExitNotice
	kindProbe
	kindProbeReply
)

// magic begins with a byte that torch never sends first. It ends with a line end, so that servers of line protocols
// such as HTTP answer at once.
const magic = "\xe5elrun\r\n"

const (
	protocolVersion = 3
	preambleSize    = len(magic) + 2
	frameHeader     = 4
	maxHandshake    = 1 << 10 // maximum size of a handshake frame
	maxFrame        = 2 << 20 // maximum size of other frames
	batchFrame      = 64 << 10
)

func appendPreamble(b []byte) []byte {
	return binary.BigEndian.AppendUint16(append(b, magic...), protocolVersion)
}

// beginFrame appends the header of a frame. endFrame sets its size; it needs the length of b before beginFrame.
func beginFrame(b []byte, k kind) []byte { return append(b, 0, 0, 0, 0, byte(k)) }

func endFrame(b []byte, begin int) []byte {
	binary.BigEndian.PutUint32(b[begin:], uint32(len(b)-begin-frameHeader))
	return b
}

// readFrame reads one frame of at most limit bytes. The caller owns the result. scratch must have at least 5 bytes.
// readFrame allocates at most twice the bytes that have arrived, whatever size the frame claims.
func readFrame(r io.Reader, limit int, scratch []byte) (kind, []byte, error) {
	head := scratch[:frameHeader]
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	return readBody(r, binary.BigEndian.Uint32(head), limit)
}

// readBody reads the rest of a frame after its header, which contains size. It returns the same values as readFrame.
func readBody(r io.Reader, size uint32, limit int) (kind, []byte, error) {
	if size == 0 || size > uint32(limit) {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes", errMalformed, size)
	}
	const step = 16 << 10
	b := make([]byte, min(int(size), step))
	for have := 0; ; {
		n, err := io.ReadFull(r, b[have:])
		if err != nil {
			return 0, nil, fmt.Errorf("frame ends after %d of %d bytes: %w", have+n, size, io.ErrUnexpectedEOF)
		}
		if have = len(b); have == int(size) {
			return kind(b[0]), b[1:], nil
		}
		bigger := make([]byte, min(int(size), 2*have))
		copy(bigger, b)
		b = bigger
	}
}

// resultCode is the result of a request, or why a session has ended.
type resultCode byte

const (
	codeDone resultCode = iota
	codeConflict
	codeLost        // ErrSessionLost
	codeUnavailable // ErrUnavailable
	codeTooLarge
	codeTaken // ErrSessionLost, for this connection only
	codeInvalid
	codeFull
	codeDenied
)

// codes are the errors with a code of their own.
var codes = [...]error{
	codeConflict: ErrConflict, codeLost: ErrSessionLost, codeUnavailable: ErrUnavailable, codeTooLarge: ErrTooLarge,
	codeTaken: ErrSessionLost, codeFull: ErrFull, codeDenied: ErrDenied,
}

const (
	flagDelete = 1
	flagOwned  = 2

	flagResync = 1
	flagMore   = 2

	flagDeleted = 1
	flagFresh   = 2
)

// commitRequest is the commit frame.
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

// value reads a value into memory of its own, so that it outlives the message. It returns nil for an empty value.
func (f *fields) value() []byte { return append([]byte(nil), f.bytes()...) }

// reply is the answer to a request.
type reply struct {
	request  int64
	revision Revision
	code     resultCode
	message  string
}

func appendReply(b []byte, r reply) []byte {
	begin := len(b)
	b = append(appendNumber(beginFrame(b, kindReply), r.request), byte(r.code))
	return endFrame(appendString(appendNumber(b, r.revision), r.message), begin)
}

func decodeReply(body []byte) (r reply, err error) {
	in := &fields{b: body}
	r = reply{request: in.number(), code: resultCode(in.byte()), revision: Revision(in.number()), message: in.string()}
	return r, in.end()
}

// appendNumbered appends a frame that consists of the number of a request or watch and, for a watch, the prefix.
func appendNumbered(b []byte, k kind, number int64, prefix ...string) []byte {
	begin := len(b)
	b = appendNumber(beginFrame(b, k), number)
	for _, p := range prefix {
		b = appendString(b, p)
	}
	return endFrame(b, begin)
}

// appendExitNotice appends an exit notice.
func appendExitNotice(b []byte, c resultCode, message string) []byte {
	begin := len(b)
	return endFrame(appendString(append(beginFrame(b, kindExitNotice), byte(c)), message), begin)
}

// durationLimit prevents an overflow by a peer's durations.
const durationLimit = 24 * time.Hour

// batchPart is one frame of a batch. A large batch has several.
type batchPart struct {
	watch int64
	more  bool // more parts follow
	batch Batch
	fresh []bool // one for each event; see core.take
}

// appendBatch appends a batch as frames of about batchFrame bytes each. A larger event gets a frame of its own.
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
