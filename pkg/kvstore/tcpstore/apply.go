package tcpstore

import (
	"bytes"
	"encoding/binary"

	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/keyspace"
)

// apply carries out req on c. It appends the fixed part of the reply to out; values are sent after that, in order,
// each after its length. An error closes the connection.
//
// apply does not handle WAIT, BARRIER and CANCEL_WAIT, which concern the wait of the connection, nor LIST_KEYS, whose
// reply is written piece by piece.
func apply(c *keyspace.Space, req *request, out []byte) (_ []byte, values [][]byte, err error) {
	switch req.op {
	case opValidate:
		if uint32(req.number) != magicNumber {
			return out, nil, refuse(ReasonMalformed, "VALIDATE with magic number %#08x, want %#08x", req.number, magicNumber)
		}
	case opPing:
		out = binary.LittleEndian.AppendUint32(out, uint32(req.number))
	case opSet:
		c.Set(req.key(0), req.takeValue(0))
	case opCompareSet:
		values = [][]byte{c.CompareSet(req.key(0), bytes.Clone(req.value(0)), req.takeValue(1))}
	case opGet:
		value, _ := c.Get(req.key(0))
		values = [][]byte{value}
	case opMultiGet:
		values = make([][]byte, len(req.keys))
		for i := range values {
			values[i], _ = c.Get(req.key(i))
		}
	case opAdd:
		sum, err := c.Add(req.key(0), int64(req.number))
		if err != nil {
			return out, nil, &refusal{ReasonNotNumber, err}
		}
		out = appendInt(out, sum)
	case opCheck:
		answer := replyReady
		for i := range req.keys {
			if !c.Has(req.key(i)) {
				answer = replyNotReady
				break
			}
		}
		out = append(out, answer)
	case opNumKeys:
		out = appendInt(out, c.NumKeys())
	case opDelete:
		var deleted int64
		if c.Delete(req.key(0)) {
			deleted = 1
		}
		out = appendInt(out, deleted)
	case opAppend:
		old, _ := c.Get(req.key(0))
		if len(old)+len(req.value(0)) > maxAppended {
			return out, nil, refuse(ReasonMalformed, "append makes a value of more than %d bytes", maxAppended)
		}
		c.Append(req.key(0), req.value(0))
	case opMultiSet:
		for i := range req.keys {
			c.Set(req.key(i), req.takeValue(i))
		}
	case opQueuePush:
		c.Push(req.key(0), req.takeValue(0))
	case opQueuePop:
		value, length := c.Pop(req.key(0))
		if out = appendInt(out, int64(length)); length > 0 {
			values = [][]byte{value}
		}
	case opQueueLen:
		out = appendInt(out, int64(c.QueueLen(req.key(0))))
	}
	return out, values, nil
}

// growth returns an upper limit of the bytes by which carrying out req grows c.
func growth(c *keyspace.Space, req *request) int64 {
	switch req.op {
	case opAppend:
		// Append gives a value more room than it needs, so that not every append copies it.
		old, _ := c.Get(req.key(0))
		return int64(len(req.bytes) + keyspace.EntryCost + cap(old)/2)
	case opSet:
		old, _ := c.Get(req.key(0))
		return int64(len(req.bytes) + keyspace.EntryCost - cap(old))
	case opCompareSet, opAdd, opMultiSet, opQueuePush, opBarrier:
		return int64(len(req.bytes) + keyspace.EntryCost*(1+len(req.keys)))
	}
	return 0
}
