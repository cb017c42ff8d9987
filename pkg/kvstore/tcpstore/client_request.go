package tcpstore

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/keyspace"
)

// query is a request of a client.
type query struct {
	op     op
	keys   []string // as users name them, unless raw
	values [][]byte
	number int64 // the request's w or i
	raw    bool  // keys get no keyPrefix
}

// keyPrefix is the prefix that torch's TCPStore puts before every key of a user.
const keyPrefix = "/"

// blocks reports whether the server may delay the reply to o without limit. A client of protocol 2 can cancel such an
// o.
func (o op) blocks() bool { return o == opWait || o == opBarrier }

// String describes q in the text of an error.
func (q *query) String() string {
	if len(q.keys) == 0 {
		return ops[q.op].verb
	}
	return ops[q.op].verb + " " + keyspace.NameKeys(slices.Clone(q.keys))
}

func (q *query) prefix() string {
	if q.raw {
		return ""
	}
	return keyPrefix
}

// check returns an ErrProtocol if q does not fit into the format of p or exceeds its limits.
func (q *query) check(p Protocol) error {
	if _, ok := p.code(q.op); !ok {
		return fmt.Errorf("%w: %s cannot %s", kvstore.ErrProtocol, p, ops[q.op].verb)
	}
	if len(q.keys) > maxKeys {
		return fmt.Errorf("%w: %d keys in one request, the most is %d", kvstore.ErrProtocol, len(q.keys), maxKeys)
	}
	size := 0
	for _, key := range q.keys {
		n := len(q.prefix()) + len(key)
		if n > maxKey {
			return fmt.Errorf("%w: a key of %d bytes (%.40q...), the most is %d", kvstore.ErrProtocol, n, key, maxKey)
		}
		size += n
	}
	for _, value := range q.values {
		if len(value) > maxValue {
			return fmt.Errorf("%w: a value of %d bytes, the most is %d", kvstore.ErrProtocol, len(value), maxValue)
		}
		size += len(value)
	}
	if size > maxRequest {
		return fmt.Errorf("%w: %d bytes of keys and values in one request, the most is %d",
			kvstore.ErrProtocol, size, maxRequest)
	}
	return nil
}

// append appends q in the format of p. check must have accepted q.
func (q *query) append(b []byte, p Protocol) []byte {
	code, _ := p.code(q.op)
	b = append(b, code)
	fields := ops[q.op].layout
	keys, values, rounds := q.keys, q.values, 1
	if fields != "" && fields[0] == 'n' {
		rounds, fields = len(keys), fields[1:]
		b = appendInt(b, int64(rounds))
	}
	for range rounds {
		for _, field := range fields {
			switch field {
			case 'w':
				b = binary.LittleEndian.AppendUint32(b, uint32(q.number))
			case 'i':
				b = appendInt(b, q.number)
			case 'k':
				b = appendInt(b, int64(len(q.prefix())+len(keys[0])))
				b = append(append(b, q.prefix()...), keys[0]...)
				keys = keys[1:]
			case 'v':
				b = appendValue(b, values[0])
				values = values[1:]
			}
		}
	}
	return b
}
