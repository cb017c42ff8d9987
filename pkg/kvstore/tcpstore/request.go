package tcpstore

import (
	"bytes"
	"encoding/binary"
	"unsafe"
)

// detectProtocol returns the protocol of a connection from its first bytes, or protocolUnknown if it needs more. Only
// 00 is ambiguous: VALIDATE, or SET of protocol 1. A SET whose key length looks like the magic number would exceed
// maxKey by far.
func detectProtocol(b []byte) Protocol {
	if len(b) == 0 {
		return protocolUnknown
	}
	seen := min(len(b), len(v2Prefix))
	switch {
	case string(b[:seen]) != v2Prefix[:seen]:
		return ProtocolV1
	case seen < len(v2Prefix):
		return protocolUnknown
	}
	return ProtocolV2
}

// request is a decoded request. It refers to the bytes that it was decoded from and is valid until they change.
type request struct {
	op     op
	number uint64 // its w or i

	bytes        []byte // the whole request
	keys, values []span

	// room is the size of the allocation that bytes is in, if the store may take that over, and 0 otherwise.
	room  int
	given bool // takeValue handed the allocation over
}

// span is a range of a request's bytes.
type span struct{ from, to int }

// key returns the i-th key without a copy: it changes when the request's bytes do.
func (r *request) key(i int) string {
	k := r.keys[i]
	if k.from == k.to {
		return ""
	}
	return unsafe.String(&r.bytes[k.from], k.to-k.from)
}

// allKeys returns all keys, as key does.
func (r *request) allKeys() []string {
	keys := make([]string, len(r.keys))
	for i := range keys {
		keys[i] = r.key(i)
	}
	return keys
}

func (r *request) value(i int) []byte {
	v := r.values[i]
	return r.bytes[v.from:v.to:v.to]
}

// takeValue returns the i-th value for a caller that keeps it. It is a copy, or, if the value is long and uses most of
// its allocation, the bytes themselves, which then belong to the caller.
func (r *request) takeValue(i int) []byte {
	v := r.value(i)
	if len(v) >= 64<<10 && len(v) >= r.room/8*7 && r.room > 0 {
		r.given = true
		return v
	}
	return bytes.Clone(v)
}

// reset drops the request's bytes, and long lists of fields, which an idle connection should not keep.
func (r *request) reset() {
	keys, values := r.keys[:0], r.values[:0]
	if cap(keys)+cap(values) > 256 {
		keys, values = nil, nil
	}
	*r = request{keys: keys, values: values}
}

// size returns the bytes that the request uses besides its own.
func (r *request) size() int { return 16 * (cap(r.keys) + cap(r.values)) }

// decoder decodes the requests of one connection. It stores only its position in the current request. The caller keeps
// the bytes and passes all of them again, and more, each time. The decoder reads no complete field twice.
type decoder struct {
	protocol Protocol

	// need is the number of bytes that the current request is known to need, at least.
	need int

	at     int     // position in the current request; 0 if there is none
	req    request // the fields so far
	fields string  // the layout of the remaining fields, up to the next repetition
	repeat string  // the layout of the fields that come once for each count of an n
	rounds uint64  // how many repetitions follow
}

// decode decodes the request at the start of b into d.req and returns its length. It returns 0 if b does not hold all
// of it; the next call must then pass the same bytes and more. d.req is valid until the next call.
func (d *decoder) decode(b []byte) (n int, err error) {
	if d.at == 0 {
		if d.need = 1; len(b) == 0 {
			return 0, nil
		}
		if err := d.begin(b[0]); err != nil {
			return 0, err
		}
	}
	for {
		for d.fields != "" {
			if complete, err := d.field(b); err != nil || !complete {
				return 0, err
			}
		}
		if d.rounds == 0 {
			n, d.at = d.at, 0
			d.req.bytes = b[:n:n]
			return n, nil
		}
		d.rounds--
		d.fields = d.repeat
	}
}

func (d *decoder) begin(b byte) error {
	o, ok := d.protocol.op(b)
	if !ok {
		return refuse(ReasonUnknownOp, "op %#02x of %s is not served", b, d.protocol)
	}
	d.req.reset()
	d.req.op = o
	d.fields = ops[o].layout
	d.at = 1
	return nil
}

// field decodes the next field. It returns false if b does not hold all of it.
func (d *decoder) field(b []byte) (complete bool, err error) {
	kind := d.fields[0]
	size := 8
	if kind == 'w' {
		size = 4
	}
	if !d.has(b, size) {
		return false, nil
	}
	switch kind {
	case 'w':
		d.req.number = uint64(binary.LittleEndian.Uint32(b[d.at:]))
	case 'i':
		d.req.number = binary.LittleEndian.Uint64(b[d.at:])
	case 'n':
		n := binary.LittleEndian.Uint64(b[d.at:])
		if n > maxKeys {
			return false, refuse(ReasonMalformed, "%d keys in one request, the most is %d", n, maxKeys)
		}
		d.rounds, d.repeat = n, d.fields[1:]
		d.at += size
		d.fields = ""
		return true, nil
	default:
		length := binary.LittleEndian.Uint64(b[d.at:])
		if err := d.checkLength(kind, length); err != nil {
			return false, err
		}
		size += int(length)
		if !d.has(b, size) {
			return false, nil
		}
		place := span{d.at + 8, d.at + size}
		if kind == 'k' {
			d.req.keys = append(d.req.keys, place)
		} else {
			d.req.values = append(d.req.values, place)
		}
	}
	d.at += size
	d.fields = d.fields[1:]
	return true, nil
}

// has reports whether b has size more bytes. If not, it sets need.
func (d *decoder) has(b []byte, size int) bool {
	if len(b)-d.at >= size {
		return true
	}
	d.need = d.at + size
	return false
}

// checkLength checks the length of a key or value.
func (d *decoder) checkLength(kind byte, n uint64) error {
	what, most := "key", uint64(maxKey)
	if kind == 'v' {
		what, most = "value", maxValue
	}
	if n > most {
		return refuse(ReasonMalformed, "a %s of %d bytes, the most is %d", what, n, most)
	}
	if uint64(d.at)+n > maxRequest {
		return refuse(ReasonMalformed, "more than %d bytes in one request", maxRequest)
	}
	return nil
}
