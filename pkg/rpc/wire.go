package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The messages between two workers. All numbers are big-endian. A text is a uint32 length and that many bytes.
//
//	request                                        answer
//	+---------------------------+                  +---------------------------+
//	| version            uint8  |                  | version            uint8  |
//	| target incarnation uint64 |                  | status             uint8  |
//	| caller's id        int64  |                  | body, by status           |
//	| caller's name      text   |                  +---------------------------+
//	| function           text   |
//	| payload            rest   |
//	+---------------------------+
//
//	status             body
//	0 ok               payload                                                       rest
//	1 error            panicked uint8, type text, message text, stack text
//	2 no function      number of names left out uint32, the known names              texts to the end
//	3 too large        direction uint8, size int64, limit int64
//	4 not encodable    direction uint8, sent type text, wanted type text, error text
//	5 replaced         nothing: the target incarnation is not that of the process that received the request
//	6 shut down        nothing
//	7 other version    nothing: the first byte is the version of the called worker
//
// Neither encoding nor decoding copies the payload.
const wireVersion = 1

// answerHeader is the number of bytes before the payload of an answer.
const answerHeader = 2

type status byte

const (
	statusOK status = iota
	statusError
	statusNoFunction
	statusTooLarge
	statusEncoding
	statusReplaced
	statusShutdown
	statusVersion
)

// errMalformed means that an envelope violates the format. The version was already checked.
var errMalformed = fmt.Errorf("%w: malformed envelope", ErrEncoding)

// request is a call on the wire.
type request struct {
	target   uint64 // incarnation of the called worker
	from     WorkerInfo
	function string
	payload  []byte
}

// encode returns the parts of the message. The last part is the payload itself.
func (r request) encode() [][]byte {
	header := make([]byte, 0, 1+8+8+4+len(r.from.Name)+4+len(r.function))
	header = append(header, wireVersion)
	header = binary.BigEndian.AppendUint64(header, r.target)
	header = binary.BigEndian.AppendUint64(header, uint64(int64(r.from.ID)))
	header = appendText(header, r.from.Name)
	header = appendText(header, r.function)
	return [][]byte{header, r.payload}
}

// decodeRequest decodes a message of request.encode. The payload is a part of message. An error wraps [ErrVersion] or
// [ErrEncoding], and [encodeAnswer] can encode it.
func decodeRequest(message []byte) (request, error) {
	rd := reader{rest: message}
	rd.version()
	r := request{target: rd.uint64(), from: WorkerInfo{ID: int(int64(rd.uint64()))}}
	r.from.Name, r.function = rd.text(), rd.text()
	if rd.err != nil {
		return request{}, fmt.Errorf("request: %w", rd.err)
	}
	r.payload = rd.rest
	return r, nil
}

// encodeAnswer returns the parts of the message for the result of a [Handler] or of the agent.
func encodeAnswer(payload []byte, err error) [][]byte {
	if err == nil {
		return [][]byte{{wireVersion, byte(statusOK)}, payload}
	}
	var (
		remote   *RemoteError
		missing  *NoFunctionError
		large    *TooLargeError
		encoding *EncodingError
	)
	b := []byte{wireVersion, 0}
	switch {
	case errors.As(err, &remote):
		b[1] = byte(statusError)
		b = append(b, flag(remote.Panic))
		b = appendText(appendText(appendText(b, remote.Type), remote.Message), remote.Stack)
	case errors.As(err, &missing):
		b[1] = byte(statusNoFunction)
		b = binary.BigEndian.AppendUint32(b, uint32(missing.More))
		for _, name := range missing.Known {
			b = appendText(b, name)
		}
	case errors.As(err, &large):
		b[1] = byte(statusTooLarge)
		b = append(b, flag(large.What == directionAnswer))
		b = binary.BigEndian.AppendUint64(b, uint64(large.Size))
		b = binary.BigEndian.AppendUint64(b, uint64(large.Limit))
	case errors.As(err, &encoding):
		b[1] = byte(statusEncoding)
		b = append(b, flag(encoding.What == directionAnswer))
		b = appendText(appendText(appendText(b, encoding.Sent), encoding.Wanted), cut(encoding.Err.Error()))
	default:
		return encodeRefusal(err)
	}
	return [][]byte{b}
}

// encodeRefusal encodes an error that has a status without a body. Any other error, such as that of an ended context,
// is encoded as an error of the function.
func encodeRefusal(err error) [][]byte {
	for kind, sentinel := range refusals {
		if errors.Is(err, sentinel) {
			return [][]byte{{wireVersion, byte(kind)}}
		}
	}
	if errors.Is(err, ErrEncoding) {
		return encodeAnswer(nil, &EncodingError{What: directionRequest, Err: err})
	}
	return encodeAnswer(nil, &RemoteError{Type: fmt.Sprintf("%T", err), Message: cut(err.Error())})
}

// refusals are the errors of the statuses without a body.
var refusals = map[status]error{
	statusReplaced: ErrReplaced, statusShutdown: ErrShutdown, statusVersion: ErrVersion,
}

// decodeAnswer decodes a message of encodeAnswer. The payload is a part of message. The caller fills in the worker and
// the function of a RemoteError.
func decodeAnswer(message []byte) ([]byte, error) {
	rd := reader{rest: message}
	rd.version()
	kind := status(rd.uint8())
	if rd.err == nil && kind == statusOK {
		return rd.rest, nil
	}
	err := rd.failure(kind)
	if rd.err == nil && len(rd.rest) > 0 {
		rd.err = fmt.Errorf("%w: %d bytes after the end", errMalformed, len(rd.rest))
	}
	if rd.err != nil {
		return nil, fmt.Errorf("answer: %w", rd.err)
	}
	return nil, err
}

// failure decodes the body of an answer that is an error.
func (r *reader) failure(kind status) error {
	switch kind {
	case statusError:
		return &RemoteError{Panic: r.flag(), Type: r.text(), Message: r.text(), Stack: r.text()}
	case statusNoFunction:
		e := &NoFunctionError{More: int(r.uint32())}
		for r.err == nil && len(r.rest) > 0 {
			e.Known = append(e.Known, r.text())
		}
		return e
	case statusTooLarge:
		return &TooLargeError{What: r.direction(), Size: int64(r.uint64()), Limit: int64(r.uint64())}
	case statusEncoding:
		return &EncodingError{What: r.direction(), Sent: r.text(), Wanted: r.text(), Err: errors.New(r.text())}
	}
	if refusals[kind] == nil {
		r.fail("status %d", kind)
	}
	return refusals[kind]
}

// reader decodes an envelope. After the first error it returns zero values.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
	}
	r.rest = nil
}

// take returns the next n bytes, or nil if there are fewer.
func (r *reader) take(n uint64) []byte {
	if uint64(len(r.rest)) < n {
		r.fail("it is truncated")
		return nil
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

// version checks the version, without which nothing else can be decoded.
func (r *reader) version() {
	if got := r.uint8(); r.err == nil && got != wireVersion {
		r.rest, r.err = nil, fmt.Errorf("%w: the peer has version %d, this worker has version %d",
			ErrVersion, got, wireVersion)
	}
}

func (r *reader) uint8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) text() string { return string(r.take(uint64(r.uint32()))) }

func (r *reader) flag() bool {
	set := r.uint8()
	if set > 1 {
		r.fail("a flag is %d", set)
	}
	return set == 1
}

func (r *reader) direction() string {
	if r.flag() {
		return directionAnswer
	}
	return directionRequest
}

func appendText(b []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(text))), text...)
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}
