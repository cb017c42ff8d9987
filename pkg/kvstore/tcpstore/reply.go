package tcpstore

// answerAll answers the requests in b and returns how many bytes they took. It stops at what it cannot
// decide yet, at what is queued behind a wait, when the client takes no more answers, and when it has done so much that the
// others should have their turn. given says that the store has kept a part of b, which own allows.
func (c *conn) answerAll(b []byte, own bool) (n int, given bool, err error) {
	c.more = false
	start := c.loop.sent
	for c.pending.empty() {
		unread := b[n:]
		if c.dec.generation == unknownGeneration {
			if len(unread) > 0 && unread[0] >= agentByte && c.loop.opts.Agents != nil {
				return n, given, c.handOver(unread)
			}
			if c.dec.generation = detect(unread); c.dec.generation == unknownGeneration {
				c.dec.need = len(opening)
				break
			}
		}
		if c.waiter != nil && c.stillWaiting(unread) {
			break
		}
		if n+c.loop.sent-start >= fairTurn {
			c.more = true
			c.loop.again = append(c.loop.again, c)
			break
		}
		size, err := c.dec.decode(unread)
		if err != nil || size == 0 {
			return n, given, err
		}
		n += size
		if own && !given {
			c.dec.req.room = c.front + cap(b)
		}
		if err := c.answer(&c.dec.req); err != nil {
			return n, given, err
		}
		given = given || c.dec.req.given
		c.dec.req.forget()
	}
	return n, given, nil
}

func (c *conn) answer(req *request) error {
	l := c.loop
	if more := growth(l.store, req); more > 0 {
		if err := l.claimStore(more); err != nil {
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
			return notNumber(err)
		}
		c.wait(w)
		return nil
	case opCancelWait:
		l.out = append(l.out, answerWaitCanceled)
		return nil
	case opListKeys:
		return c.putKeys()
	}
	var values [][]byte
	var err error
	l.out, values, err = apply(l.store, req, l.out)
	if err != nil {
		return err
	}
	return c.putValues(values)
}

// putKeys puts the answer to LIST_KEYS.
func (c *conn) putKeys() error {
	l := c.loop
	l.out = appendInt(l.out, l.store.NumKeys())
	for key := range l.store.Keys() {
		l.out = append(appendInt(l.out, int64(len(key))), key...)
		if len(l.out) >= writeSize {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// putValues puts values into the answer. It writes large ones at once: an answer may refer to far more
// bytes than it should hold in memory a second time.
func (c *conn) putValues(values [][]byte) error {
	l := c.loop
	for _, value := range values {
		if len(value) < writeSize {
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
		if len(l.out) >= writeSize {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendValue sends value behind what was flushed.
func (c *conn) sendValue(value []byte) error {
	n := 0
	c.loop.sent += len(value)
	if c.pending.empty() {
		var err error
		if n, err = sendSome(c.fd, value); err != nil || n == len(value) {
			return err
		}
		if err := c.loop.poll.turn(c.fd, true); err != nil {
			return err
		}
	}
	c.pending.refer(value, n, &c.loop.pins)
	return c.claimGrowth()
}

// flush sends the answers gathered, as far as the client takes them.
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
		if err := l.poll.turn(c.fd, true); err != nil {
			return err
		}
		out = out[n:]
	}
	c.pending.copyOf(out)
	return c.claimGrowth()
}
