package tcpstore

// outbox holds the bytes of answers that a client was too slow to take, in order. Its zero value is empty.
type outbox struct {
	pieces []piece
	copied int // bytes of its own that it takes
	pinned int // bytes of values that it refers to
}

// piece is a part of an answer.
type piece struct {
	rest  []byte // what is still to be sent
	size  int    // the bytes that it takes until all is sent
	value []byte // the value that rest is the end of; nil where the bytes are the outbox's own
}

func (o *outbox) empty() bool { return len(o.pieces) == 0 }

// copyOf adds a copy of b.
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

// refer adds the end of value from byte n on. The value itself must not change any more.
func (o *outbox) appendRef(value []byte, n int, pins *pins) {
	o.pieces = append(o.pieces, piece{rest: value[n:], size: cap(value), value: value})
	o.pinned += cap(value)
	pins.add(value)
}

// sendTo writes to fd what it takes.
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

// drop takes the first piece away.
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

// clear takes all pieces away.
func (o *outbox) clear(pins *pins) {
	for !o.empty() {
		o.drop(pins)
	}
}

// pins counts how often each value is referred to by outboxes, so that the memory of one that many clients
// are about to take counts once. Its zero value is not usable.
type pins struct {
	values map[*byte]*pin // by the value's first byte
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

// maxBurst is how many bytes are written to a connection in one go: the others are to have their turn.
const maxBurst = 4 << 20

// sendSome writes to fd as much of b as it takes now, up to maxBurst.
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

// maxCall is how many bytes one system call may move. A raw one cannot be interrupted, and the garbage collector
// waits for it.
const maxCall = 256 << 10
