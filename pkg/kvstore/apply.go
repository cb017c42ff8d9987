package kvstore

import (
	"encoding/binary"
	"errors"
)

// apply carries out req on c, for every op but those that concern the connection's wait: WAIT, BARRIER and
// CANCEL_WAIT. It appends the answer's fixed part to out; what follows that in the answer are values, to
// be sent in order, each after its length. An error closes the connection. mayGive is as for request.keep.
func apply(c *core, req *request, mayGive bool, out []byte) (_ []byte, values [][]byte, err error) {
	switch req.op {
	case opValidate:
		if uint32(req.number) != magicNumber {
			return out, nil, refuse(ReasonMalformed, "VALIDATE with magic number %#08x, want %#08x", req.number, magicNumber)
		}
	case opPing:
		out = binary.LittleEndian.AppendUint32(out, uint32(req.number))
	case opSet:
		c.set(req.key(0), req.keep(0, mayGive))
	case opCompareSet:
		values = [][]byte{c.compareSet(req.key(0), req.keep(0, false), req.keep(1, mayGive))}
	case opGet:
		value, _ := c.get(req.key(0))
		values = [][]byte{value}
	case opMultiGet:
		values = make([][]byte, len(req.keys))
		for i := range values {
			values[i], _ = c.get(req.key(i))
		}
	case opAdd:
		sum, err := c.add(req.key(0), int64(req.number))
		if err != nil {
			return out, nil, notNumber(err)
		}
		out = appendInt(out, sum)
	case opCheck:
		answer := answerReady
		for i := range req.keys {
			if !c.present(req.key(i)) {
				answer = answerNotReady
				break
			}
		}
		out = append(out, answer)
	case opNumKeys:
		out = appendInt(out, c.numKeys())
	case opDelete:
		var deleted int64
		if c.delete(req.key(0)) {
			deleted = 1
		}
		out = appendInt(out, deleted)
	case opAppend:
		c.append(req.key(0), req.value(0))
	case opMultiSet:
		for i := range req.keys {
			c.set(req.key(i), req.keep(i, false))
		}
	case opQueuePush:
		c.push(req.key(0), req.keep(0, mayGive))
	case opQueuePop:
		value, length := c.pop(req.key(0))
		if out = appendInt(out, int64(length)); length > 0 {
			values = [][]byte{value}
		}
	case opQueueLen:
		out = appendInt(out, int64(c.queueLen(req.key(0))))
	case opListKeys:
		keys := c.list()
		out = appendInt(out, int64(len(keys)))
		values = make([][]byte, len(keys))
		for i, key := range keys {
			values[i] = []byte(key)
		}
	}
	return out, values, nil
}

// notNumber makes an add to no number a reason to close the connection.
func notNumber(err error) error {
	if errors.Is(err, ErrNotNumber) {
		return &refusal{reason: ReasonNotNumber, err: err}
	}
	return err
}

// stores tells whether o can make the store bigger.
func (o op) stores() bool {
	switch o {
	case opSet, opCompareSet, opAdd, opAppend, opMultiSet, opQueuePush, opBarrier, opWait:
		return true
	}
	return false
}
