package kvstore

import (
	"encoding/binary"
	"errors"
)

// apply carries out req on c, for every op but those that concern the connection's wait, WAIT and
// CANCEL_WAIT. It appends the answer's fixed part to out; what follows that in the answer are values, to
// be sent in order, each after its length. An error closes the connection.
func apply(c *core, req *request, out []byte) (_ []byte, values [][]byte, err error) {
	switch req.op {
	case opValidate:
		if uint32(req.number) != magicNumber {
			return out, nil, refuse(ReasonMalformed, "VALIDATE with magic number %#08x, want %#08x", req.number, magicNumber)
		}
	case opPing:
		out = binary.LittleEndian.AppendUint32(out, uint32(req.number))
	case opSet:
		c.set(req.keys[0], req.values[0])
	case opCompareSet:
		values = [][]byte{c.compareSet(req.keys[0], req.values[0], req.values[1])}
	case opGet, opMultiGet:
		values = make([][]byte, len(req.keys))
		for i, key := range req.keys {
			values[i], _ = c.get(key)
		}
	case opAdd:
		sum, err := c.add(req.keys[0], int64(req.number))
		if errors.Is(err, ErrNotNumber) {
			return out, nil, &refusal{reason: ReasonNotNumber, err: err}
		}
		out = appendInt(out, sum)
	case opCheck:
		answer := answerNotReady
		if c.check(req.keys) {
			answer = answerReady
		}
		out = append(out, answer)
	case opNumKeys:
		out = appendInt(out, c.numKeys())
	case opDelete:
		var deleted int64
		if c.delete(req.keys[0]) {
			deleted = 1
		}
		out = appendInt(out, deleted)
	case opAppend:
		c.append(req.keys[0], req.values[0])
	case opMultiSet:
		for i, key := range req.keys {
			c.set(key, req.values[i])
		}
	}
	return out, values, nil
}
