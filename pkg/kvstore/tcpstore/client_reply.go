package tcpstore

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// Limits of a reply. A value may be far larger than a request can carry, because APPEND made it.
const (
	maxReply  = 1 << 30 // bytes of all values of one call
	maxListed = 1 << 24 // keys of a LIST_KEYS
	valueCost = 64      // approximate bytes of a value besides its own

	firstChunk = 4 << 10 // bytes allocated for a value before any of it has arrived
)

// answer collects the replies to the queries of one call.
type answer struct {
	flag   byte     // of the last CHECK
	number int64    // the last i
	values [][]byte // every v, in order
	size   int64    // approximate bytes of values
}

// replyReader reads a server's replies. It allocates at most twice the bytes that have arrived, whatever length the
// server claims. Its error is an ErrProtocol if the reply makes no sense, and otherwise that of r.
type replyReader struct {
	r *bufio.Reader
}

// read reads the reply to q and adds it to a.
func (r replyReader) read(q *query, a *answer) (err error) {
	switch q.op {
	case opPing:
		return r.echo(uint32(q.number))
	case opCheck:
		a.flag, err = r.flag(replyNotReady)
	case opWait, opBarrier:
		_, err = r.flag(replyStopWaiting)
	case opCancelWait:
		a.flag, err = r.flag(replyWaitCanceled)
	case opAdd:
		a.number, err = r.integer()
	case opDelete:
		a.number, err = r.count(1)
	case opNumKeys, opQueueLen:
		a.number, err = r.count(1<<63 - 1)
	case opGet, opCompareSet:
		err = r.values(1, a)
	case opMultiGet:
		err = r.values(int64(len(q.keys)), a)
	case opQueuePop:
		if a.number, err = r.count(1<<63 - 1); err == nil {
			err = r.values(min(a.number, 1), a)
		}
	case opListKeys:
		if a.number, err = r.count(maxListed); err == nil {
			err = r.values(a.number, a)
		}
	}
	return err
}

// echo reads the reply to a PING.
func (r replyReader) echo(nonce uint32) error {
	b, err := r.r.Peek(4)
	if err != nil {
		return err
	}
	if got := binary.LittleEndian.Uint32(b); got != nonce {
		return fmt.Errorf("%w: PING of %#08x was answered by %#08x", kvstore.ErrProtocol, nonce, got)
	}
	_, err = r.r.Discard(4)
	return err
}

// flag reads a byte between 0 and most.
func (r replyReader) flag(most byte) (byte, error) {
	b, err := r.r.ReadByte()
	if err == nil && b > most {
		return 0, fmt.Errorf("%w: answer %#02x, want at most %d", kvstore.ErrProtocol, b, most)
	}
	return b, err
}

func (r replyReader) integer() (int64, error) {
	b, err := r.r.Peek(8)
	if err != nil {
		return 0, err
	}
	n := int64(binary.LittleEndian.Uint64(b))
	_, err = r.r.Discard(8)
	return n, err
}

// count reads an integer between 0 and most.
func (r replyReader) count(most int64) (int64, error) {
	n, err := r.integer()
	if err == nil && (n < 0 || n > most) {
		return 0, fmt.Errorf("%w: answer %d, want 0 to %d", kvstore.ErrProtocol, n, most)
	}
	return n, err
}

func (r replyReader) values(n int64, a *answer) error {
	for range n {
		value, err := r.value(maxReply - a.size)
		if err != nil {
			return err
		}
		a.size += int64(len(value)) + valueCost
		a.values = append(a.values, value)
	}
	return nil
}

// value reads a value of at most most bytes.
func (r replyReader) value(most int64) ([]byte, error) {
	length, err := r.integer()
	if err != nil {
		return nil, err
	}
	if length < 0 || length > most {
		return nil, fmt.Errorf(
			"%w: a value of %d bytes; the most for all values of a reply is %d", kvstore.ErrProtocol, length, maxReply,
		)
	}
	value := make([]byte, min(int(length), firstChunk))
	for came := 0; ; {
		n, err := io.ReadFull(r.r, value[came:])
		if err != nil {
			return nil, err
		}
		if came += n; came == int(length) {
			return value, nil
		}
		grown := make([]byte, min(int(length), 2*came))
		copy(grown, value)
		value = grown
	}
}
