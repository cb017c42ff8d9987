package kvstore

// outbox holds the bytes of answers that a client was too slow to take, in order. Its zero value is empty.
type outbox struct {
	pieces [][]byte
	own    bool // the last piece is the outbox's, and may be appended to
	size   int  // bytes in all
}

// copyOf adds a copy of b.
func (o *outbox) copyOf(b []byte) {
	if !o.own {
		o.pieces = append(o.pieces, nil)
		o.own = true
	}
	last := &o.pieces[len(o.pieces)-1]
	*last = append(*last, b...)
	o.size += len(b)
}

// refer adds b itself, which must not change any more.
func (o *outbox) refer(b []byte) {
	o.pieces = append(o.pieces, b)
	o.own = false
	o.size += len(b)
}

func (o *outbox) empty() bool { return o.size == 0 }

// sendTo writes to fd what it takes.
func (o *outbox) sendTo(fd int) error {
	for len(o.pieces) > 0 {
		piece := o.pieces[0]
		n, err := sendSome(fd, piece)
		o.size -= n
		if n < len(piece) {
			o.pieces[0] = piece[n:]
			return err
		}
		o.pieces[0] = nil
		o.pieces = o.pieces[1:]
	}
	*o = outbox{}
	return nil
}

// sendSome writes to fd as much of b as it takes now.
func sendSome(fd int, b []byte) (n int, err error) {
	for n < len(b) {
		m, err := sockWrite(fd, b[n:])
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
