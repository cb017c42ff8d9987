package kvstore

import (
	"bytes"
	"encoding/binary"
)

// detect tells a connection's generation from its first bytes, unknownGeneration while it takes more
// of them. Only 00 is ambiguous: VALIDATE, or the first generation's SET. A SET whose key length reads
// like the magic number would be far above maxKey.
func detect(b []byte) Generation {
	if len(b) == 0 {
		return unknownGeneration
	}
	handshake := binary.LittleEndian.AppendUint32([]byte{byte(opValidate)}, magicNumber)
	seen := min(len(b), len(handshake))
	switch {
	case !bytes.Equal(b[:seen], handshake[:seen]):
		return FirstGeneration
	case seen < len(handshake):
		return unknownGeneration
	}
	return TodaysGeneration
}

// request is a decoded request.
type request struct {
	op     op
	keys   []string
	values [][]byte
	number uint64 // the request's w or i
}

// decoder decodes the requests of one connection, whose bytes may come in any pieces. It holds what has
// come of the request under way and sets no memory aside for more than twice that.
type decoder struct {
	generation Generation

	busy   bool // a request is under way
	req    request
	fields string // the fields still to come of this round
	repeat string // the fields of each further round
	rounds uint64 // further rounds
	size   uint64 // bytes of keys and values so far, announced ones included

	integer  []byte // the first bytes of an integer that has come in part
	inBytes  bool   // a key or value is under way
	length   int    // its length
	received []byte // what has come of it in earlier pieces
}

// decode reads from b up to the end of one request at most. It returns the bytes it has not read and
// the request; a nil request means that it has read all of b and needs more.
func (d *decoder) decode(b []byte) (rest []byte, req *request, err error) {
	if !d.busy {
		if len(b) == 0 {
			return nil, nil, nil
		}
		if err := d.begin(b[0]); err != nil {
			return nil, nil, err
		}
		b = b[1:]
	}
	for {
		if d.fields == "" {
			if d.rounds == 0 {
				done := d.req
				d.busy, d.req = false, request{}
				return b, &done, nil
			}
			d.rounds--
			d.fields = d.repeat
		}
		var complete bool
		if b, complete, err = d.field(b); err != nil || !complete {
			return nil, nil, err
		}
	}
}

func (d *decoder) begin(b byte) error {
	o, ok := d.generation.op(b)
	if !ok {
		return refuse(ReasonUnknownOp, "op %#02x of %s is not served", b, d.generation)
	}
	d.busy = true
	d.req = request{op: o}
	d.fields, _ = o.layout()
	d.size = 0
	return nil
}

// field reads the next field, or as much of it as b has.
func (d *decoder) field(b []byte) (rest []byte, complete bool, err error) {
	kind := d.fields[0]
	if kind == 'k' || kind == 'v' {
		if b, complete, err = d.bytesField(kind, b); complete {
			d.fields = d.fields[1:]
		}
		return b, complete, err
	}
	n, b, complete := d.fixed(kind, b)
	if !complete {
		return nil, false, nil
	}
	d.fields = d.fields[1:]
	if kind != 'n' {
		d.req.number = n
		return b, true, nil
	}
	if n > maxKeys {
		return nil, false, refuse(ReasonMalformed, "%d keys in one request, the most is %d", n, maxKeys)
	}
	d.rounds, d.repeat, d.fields = n, d.fields, ""
	return b, true, nil
}

// fixed reads an integer.
func (d *decoder) fixed(kind byte, b []byte) (n uint64, rest []byte, complete bool) {
	size := 8
	if kind == 'w' {
		size = 4
	}
	take := min(size-len(d.integer), len(b))
	d.integer = append(d.integer, b[:take]...)
	if len(d.integer) < size {
		return 0, nil, false
	}
	if size == 4 {
		n = uint64(binary.LittleEndian.Uint32(d.integer))
	} else {
		n = binary.LittleEndian.Uint64(d.integer)
	}
	d.integer = d.integer[:0]
	return n, b[take:], true
}

// bytesField reads a key or a value.
func (d *decoder) bytesField(kind byte, b []byte) (rest []byte, complete bool, err error) {
	if !d.inBytes {
		n, rest, ok := d.fixed(kind, b)
		if !ok {
			return nil, false, nil
		}
		if err := d.announce(kind, n); err != nil {
			return nil, false, err
		}
		b = rest
	}
	take := min(d.length-len(d.received), len(b))
	if kind == 'k' && take == d.length {
		d.req.keys = append(d.req.keys, string(b[:take]))
	} else {
		d.received = grow(d.received, take, d.length)
		d.received = append(d.received, b[:take]...)
		if len(d.received) < d.length {
			return nil, false, nil
		}
		if kind == 'k' {
			d.req.keys = append(d.req.keys, string(d.received))
		} else {
			d.req.values = append(d.req.values, d.received)
		}
	}
	d.inBytes, d.received = false, nil
	return b[take:], true, nil
}

// announce takes note of the length of a key or value that follows.
func (d *decoder) announce(kind byte, n uint64) error {
	what, most := "key", uint64(maxKey)
	if kind == 'v' {
		what, most = "value", maxValue
	}
	if n > most {
		return refuse(ReasonMalformed, "a %s of %d bytes, the most is %d", what, n, most)
	}
	if d.size += n; d.size > maxRequest {
		return refuse(ReasonMalformed, "more than %d bytes of keys and values in one request", maxRequest)
	}
	d.inBytes, d.length = true, int(n)
	return nil
}

// grow makes room for n more bytes in b, which will be length bytes long in the end: all at once if
// they are its last ones, otherwise by doubling, so that b never has room for more than twice what has
// come and in the end exactly for length.
func grow(b []byte, n, length int) []byte {
	if len(b)+n <= cap(b) {
		return b
	}
	grown := make([]byte, len(b), min(length, max(len(b)+n, 2*cap(b))))
	copy(grown, b)
	return grown
}
