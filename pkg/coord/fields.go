package coord

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// errMalformed means that bytes do not follow their format.
var errMalformed = errors.New("malformed message")

// fields reads the fields of a message one after the other. After the first missing field all fields are zero, and end
// returns an error.
type fields struct {
	b         []byte
	malformed bool
}

// number reads a uvarint that fits an int64.
func (f *fields) number() int64 {
	v, n := binary.Uvarint(f.b)
	if n <= 0 || v > math.MaxInt64 || f.malformed {
		f.malformed, f.b = true, nil
		return 0
	}
	f.b = f.b[n:]
	return int64(v)
}

func (f *fields) duration() time.Duration { return time.Duration(f.number()) }

// count reads the number of items that follow, each of at least the given number of bytes. A false count cannot make
// the caller allocate much memory.
func (f *fields) count(least int) int {
	n := f.number()
	if n > int64(len(f.b)/least) {
		f.malformed, f.b = true, nil
		return 0
	}
	return int(n)
}

func (f *fields) byte() byte {
	b := f.take(1)
	if len(b) == 0 {
		return 0
	}
	return b[0]
}

// take reads n bytes. The result aliases the message.
func (f *fields) take(n int64) []byte {
	if n > int64(len(f.b)) || f.malformed {
		f.malformed, f.b = true, nil
		return nil
	}
	b := f.b[:n:n]
	f.b = f.b[n:]
	return b
}

// bytes reads bytes after their length. The result aliases the message.
func (f *fields) bytes() []byte { return f.take(f.number()) }

func (f *fields) string() string { return string(f.bytes()) }

// end returns an error if a field is missing or bytes are left.
func (f *fields) end() error {
	if f.malformed || len(f.b) > 0 {
		return errMalformed
	}
	return nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendBytes(b, s []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendNumber[N ~int | ~int64 | ~uint32 | ~uint64](b []byte, n N) []byte {
	return binary.AppendUvarint(b, uint64(n))
}
