package tcpstore

// outbox holds replies that a client was too slow to read, in order. The zero value is empty.
type outbox struct {
	pieces []piece
	copied int // bytes of its own
	pinned int // bytes of values that it refers to
}

// piece is part of a reply.
type piece struct {
	rest  []byte // still to be sent
	size  int    // bytes of memory until all of it is sent
	value []byte // the value whose end rest is; nil if the bytes belong to the outbox
}

func (o *outbox) empty() bool { return len(o.pieces) == 0 }

// appendCopy appends a copy of b.
func (o *outbox) appendCopy(b []byte) {
	last := len(o.pieces) - 1
	if last < 0 || o.pieces[last].value != nil || o.pieces[last].size > flushSize {
		o.pieces = append(o.pieces, piece{})
		last++
	}
	p := &o.pieces[last]
	p.rest = append(p.rest, b...)
	p.size += len(b)
	o.copied += len(b)
}

// appendRef appends value[n:] without a copy. The value must not change any more.
func (o *outbox) appendRef(value []byte, n int, pins *pins) {
	o.pieces = append(o.pieces, piece{rest: value[n:], size: cap(value), value: value})
	o.pinned += cap(value)
	pins.add(value)
}

// sendTo writes to fd as much as fits.
func (o *outbox) sendTo(fd int, pins *pins) error {
	for sent := 0; len(o.pieces) > 0; {
		n, err := sendSome(fd, o.pieces[0].rest)
		o.pieces[0].rest = o.pieces[0].rest[n:]
		if sent += n; err != nil || len(o.pieces[0].rest) > 0 || sent >= maxBurst {
			return err
		}
		o.drop(pins)
	}
	*o = outbox{}
	return nil
}

// drop removes the first piece.
func (o *outbox) drop(pins *pins) {
	p := o.pieces[0]
	o.pieces[0] = piece{}
	o.pieces = o.pieces[1:]
	if p.value == nil {
		o.copied -= p.size
		return
	}
	o.pinned -= p.size
	pins.drop(p.value)
}

// clear removes all pieces.
func (o *outbox) clear(pins *pins) {
	for !o.empty() {
		o.drop(pins)
	}
}

// pins counts the references from outboxes to each value, so that a value that many clients are reading counts once.
// The zero value is not usable.
type pins struct {
	values map[*byte]*pin // by the address of the value's first byte
	size   int64          // bytes of all values
}

type pin struct{ refs, size int }

func (p *pins) add(value []byte) {
	v := p.values[&value[0]]
	if v == nil {
		v = &pin{size: cap(value)}
		p.values[&value[0]] = v
		p.size += int64(v.size)
	}
	v.refs++
}

func (p *pins) drop(value []byte) {
	v := p.values[&value[0]]
	if v.refs--; v.refs == 0 {
		delete(p.values, &value[0])
		p.size -= int64(v.size)
	}
}

// maxBurst limits the bytes written to a connection at a time, so that the others get their turn.
const maxBurst = 4 << 20

// sendSome writes to fd as much of b as fits, up to maxBurst.
func sendSome(fd int, b []byte) (n int, err error) {
	for n < len(b) && n < maxBurst {
		m, err := sockWrite(fd, b[n:min(len(b), n+maxCall)])
		if err != nil {
			if wouldBlock(err) {
				err = nil
			}
			return n, err
		}
		n += m
	}
	return n, nil
}

// maxCall limits the bytes that one system call moves. A raw system call cannot be interrupted, and the garbage
// collector waits for it.
const maxCall = 256 << 10
