package tcpstore

// processRequests answers the requests in b and returns how many bytes they took. It stops at an incomplete request,
// at a wait, when the client does not read its replies, and after turnSize bytes, to yield to the other connections.
// given means that the store has kept part of b, which only happens if own is set.
func (c *conn) processRequests(b []byte, own bool) (n int, given bool, err error) {
	c.yielded = false
	start := c.loop.sent
	for c.pending.empty() {
		unread := b[n:]
		if c.dec.protocol == protocolUnknown {
			if len(unread) > 0 && unread[0] >= firstAgentByte && c.loop.opts.Agents != nil {
				return n, given, c.handOver(unread)
			}
			if c.dec.protocol = detectProtocol(unread); c.dec.protocol == protocolUnknown {
				c.dec.need = len(v2Prefix)
				break
			}
		}
		if c.waiter != nil && c.keepWaiting(unread) {
			break
		}
		if n+c.loop.sent-start >= turnSize {
			c.yielded = true
			c.loop.yielded = append(c.loop.yielded, c)
			break
		}
		size, err := c.dec.decode(unread)
		if err != nil || size == 0 {
			return n, given, err
		}
		n += size
		if own && !given {
			c.dec.req.room = c.discarded + cap(b)
		}
		if err := c.handle(&c.dec.req); err != nil {
			return n, given, err
		}
		given = given || c.dec.req.given
		c.dec.req.reset()
	}
	return n, given, nil
}

func (c *conn) handle(req *request) error {
	l := c.loop
	if more := growth(l.store, req); more > 0 {
		if err := l.checkStoreSize(more); err != nil {
			return err
		}
	}
	switch req.op {
	case opWait:
		c.wait(l.store.Wait(req.allKeys(), c.release))
		return nil
	case opBarrier:
		w, err := l.store.Arrive(req.key(0), int64(req.number), c.release)
		if err != nil {
			return &refusal{ReasonNotNumber, err}
		}
		c.wait(w)
		return nil
	case opCancelWait:
		l.out = append(l.out, replyWaitCanceled)
		return nil
	case opListKeys:
		return c.writeKeys()
	}
	var values [][]byte
	var err error
	l.out, values, err = apply(l.store, req, l.out)
	if err != nil {
		return err
	}
	return c.writeValues(values)
}

// writeKeys appends the reply to LIST_KEYS.
func (c *conn) writeKeys() error {
	l := c.loop
	l.out = appendInt(l.out, l.store.NumKeys())
	for key := range l.store.Keys() {
		l.out = append(appendInt(l.out, int64(len(key))), key...)
		if len(l.out) >= flushSize {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeValues appends values to the reply. It sends large values without copying them, because a reply may refer to far
// more bytes than the server should copy.
func (c *conn) writeValues(values [][]byte) error {
	l := c.loop
	for _, value := range values {
		if len(value) < flushSize {
			l.out = appendValue(l.out, value)
		} else {
			l.out = appendInt(l.out, int64(len(value)))
			if err := c.flush(); err != nil {
				return err
			}
			if err := c.sendValue(value); err != nil {
				return err
			}
		}
		if len(l.out) >= flushSize {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendValue sends value after the replies that were flushed.
func (c *conn) sendValue(value []byte) error {
	n := 0
	c.loop.sent += len(value)
	if c.pending.empty() {
		var err error
		if n, err = sendSome(c.fd, value); err != nil || n == len(value) {
			return err
		}
		if err := c.loop.poll.watchWrite(c.fd, true); err != nil {
			return err
		}
	}
	c.pending.appendRef(value, n, &c.loop.pins)
	return c.reserveGrowth()
}

// flush sends the collected replies, and keeps in c.pending what the client is too slow to read.
func (c *conn) flush() error {
	l := c.loop
	if len(l.out) == 0 {
		return nil
	}
	out := l.out
	l.out = l.out[:0]
	l.sent += len(out)
	if c.pending.empty() {
		n, err := sendSome(c.fd, out)
		if err != nil || n == len(out) {
			return err
		}
		if err := l.poll.watchWrite(c.fd, true); err != nil {
			return err
		}
		out = out[n:]
	}
	c.pending.appendCopy(out)
	return c.reserveGrowth()
}
