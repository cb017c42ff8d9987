package tcpstore

import "encoding/binary"

// The wire format of torch's TCPStore, as recorded from torch 1.13.0, 2.6.0, 2.14.1 and 2.15.0 (testdata/wire).
// Integers are little-endian. A request is an op byte and the fields of its layout:
//
//	w   u32
//	i   i64
//	k   key:   u64 length, bytes
//	v   value: u64 length, bytes
//	n   u64 count; the fields after it come that many times
//
//	v1     v2     op            layout  reply
//	       00     VALIDATE      w       none; w is the magic number
//	00     01     SET           kv      none
//	01     02     COMPARE_SET   kvv     v: the value now held; the second v is the desired one
//	02     03     GET           k       v
//	03     04     ADD           ki      i: the sum
//	04     05     CHECK         nk      byte 0: all present, 1: not
//	05     06     WAIT          nk      byte 0, once all have been set
//	06     07     GETNUMKEYS            i
//	08     08     DELETE_KEY    k       i: 1 if it was present, else 0
//	       09     APPEND        kv      none
//	       0a     MULTI_GET     nk      a v for each k
//	       0b     MULTI_SET     nkv     none
//	       0c     CANCEL_WAIT           byte 1
//	       0d     PING          w       w: the same
//
//	       0e     QUEUE_PUSH    kv      none
//	       0f     QUEUE_POP     k       i: the length before the pop; v if that is not 0
//	       10     QUEUE_LEN     k       i
//	       11     LIST_KEYS             n; a v for each key
//	       12     BARRIER       ki      byte 0, once i clients have arrived
//
// Not served: 07 WATCH_KEY of protocol 1.

// op is the op code of a request, as protocol 2 numbers it.
type op byte

const (
	opValidate op = iota
	opSet
	opCompareSet
	opGet
	opAdd
	opCheck
	opWait
	opNumKeys
	opDelete
	opAppend
	opMultiGet
	opMultiSet
	opCancelWait
	opPing
	opQueuePush
	opQueuePop
	opQueueLen
	opListKeys
	opBarrier
)

// ops describes the requests that are served.
var ops = [...]struct {
	layout string // its fields
	verb   string // what it does, in the text of a client's error; keys may follow
	silent bool   // it has no reply
}{
	opValidate:   {"w", "handshake", true},
	opSet:        {"kv", "set", true},
	opCompareSet: {"kvv", "compare and set", false},
	opGet:        {"k", "get", false},
	opAdd:        {"ki", "add to", false},
	opCheck:      {"nk", "check", false},
	opWait:       {"nk", "wait for", false},
	opNumKeys:    {"", "count keys", false},
	opDelete:     {"k", "delete", false},
	opAppend:     {"kv", "append to", true},
	opMultiGet:   {"nk", "get", false},
	opMultiSet:   {"nkv", "set", true},
	opCancelWait: {"", "handshake", false},
	opPing:       {"w", "handshake", false},
	opQueuePush:  {"kv", "push to queue of", true},
	opQueuePop:   {"k", "pop from queue of", false},
	opQueueLen:   {"k", "get queue length of", false},
	opListKeys:   {"", "list keys", false},
	opBarrier:    {"ki", "pass barrier of", false},
}

// Protocol is a version of the wire protocol.
type Protocol byte

const (
	protocolUnknown Protocol = iota

	// ProtocolV1 is the protocol of torch 1.x, checked against 1.13.
	ProtocolV1

	// ProtocolV2 is the protocol of torch 2.x, checked against 2.6 and 2.14.
	ProtocolV2
)

// String names the versions of torch that speak p.
func (p Protocol) String() string {
	switch p {
	case ProtocolV1:
		return "torch 1.x"
	case ProtocolV2:
		return "torch 2.x"
	}
	return "an unknown protocol"
}

// op returns the meaning of op byte b in p, or false if it is not served.
func (p Protocol) op(b byte) (op, bool) {
	o := op(b)
	if p == ProtocolV1 {
		switch {
		case b <= 0x06:
			o++
		case b != byte(opDelete):
			return 0, false
		}
	}
	return o, int(o) < len(ops)
}

// code is the inverse of op: it returns the op byte of o in p, or false if p lacks it.
func (p Protocol) code(o op) (byte, bool) {
	switch {
	case p == ProtocolV2 || o == opDelete:
		return byte(o), true
	case o >= opSet && o < opDelete:
		return byte(o) - 1, true
	}
	return 0, false
}

// Replies to CHECK, WAIT and CANCEL_WAIT.
const (
	replyReady        byte = 0
	replyNotReady     byte = 1
	replyStopWaiting  byte = 0
	replyWaitCanceled byte = 1
)

// magicNumber is the argument of VALIDATE.
const magicNumber uint32 = 0x3C85F7CE

// v2Prefix begins every connection of protocol 2: VALIDATE.
const v2Prefix = "\x00\xce\xf7\x85\x3c"

// firstAgentByte is the lowest first byte of an agent's connection. No op code of either protocol is as high.
const firstAgentByte = 0x80

// Limits of a request. Those of a key, a value and the number of keys are torch's.
const (
	maxKey      = 8 << 10   // bytes
	maxValue    = 8 << 20   // bytes, in one request
	maxKeys     = 128 << 10 // in one request
	maxRequest  = 256 << 20 // bytes of one request
	maxAppended = 64 << 20  // bytes of a value that APPEND made, which growing it copies at times
)

// appendInt appends an i.
func appendInt(b []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(b, uint64(n))
}

// appendValue appends a v.
func appendValue(b, value []byte) []byte {
	return append(appendInt(b, int64(len(value))), value...)
}
