package filestore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/keyspace"
)

// The format of torch's FileStore, checked against torch 2.14.1. A file is a sequence of records:
//
//	u32 length, key, u32 length, value	(little-endian)
//
// The content of the file is what replaying its records leaves. A record sets its key. If the key starts with "-", the
// record deletes the key that follows the "-", and its value is ignored. The file holds a user's key k as "/k".
const (
	userPrefix   = "/"
	deletePrefix = "-"
	refcountKey  = "refcount/" // how many stores are open now, as a decimal number
	cleanupKey   = "cleanup/"  // how many stores have been closed so far
)

// maxData limits the bytes of keys and values that a Store holds. It keeps every length within a u32. torch has no
// such limit.
const maxData = 1 << 30

// record is a record of the file.
type record struct {
	key   string // as in the file
	value []byte
}

func (r record) appendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.key)))
	b = append(b, r.key...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.value)))
	return append(b, r.value...)
}

// recordLog is the content of the file that has been read so far. It does no I/O of its own.
type recordLog struct {
	data   map[string][]byte // by the keys as in the file; values are never changed in place
	offset int64             // of the first record that is not in data
	size   int64             // bytes of keys and values in data
	limit  int64             // of size
	waits  map[*keyWait]struct{}
}

// keyWait is a wait for keys. A record that sets a key removes it from missing, even if the key is deleted later.
type keyWait struct {
	missing map[string]struct{} // as in the file
}

func newRecordLog() *recordLog {
	return &recordLog{data: map[string][]byte{}, limit: maxData, waits: map[*keyWait]struct{}{}}
}

// replay reads the records from l.offset to end, the size of the file, from r. Its error is an ErrProtocol, or that of
// r. After an error, l.offset is the offset of the record that could not be read, and data holds the records before
// it.
//
// It allocates no memory for a length that goes beyond the end of the file.
func (l *recordLog) replay(r *bufio.Reader, end int64) error {
	for l.offset < end {
		left := end - l.offset
		key, err := l.read(r, "key", &left, true)
		if err != nil {
			return err
		}
		deletion := strings.HasPrefix(string(key), deletePrefix)
		value, err := l.read(r, "value", &left, !deletion)
		if err != nil {
			return err
		}
		rec := record{key: string(key), value: value}
		if l.sizeAfter(rec) > l.limit {
			return l.malformed("more than %d bytes of keys and values", l.limit)
		}
		l.apply(rec)
		l.offset = end - left
	}
	return nil
}

// read reads a key or a value of the record at l.offset. left is the number of bytes up to the end of the file.
// Without keep, read skips the bytes.
func (l *recordLog) read(r *bufio.Reader, what string, left *int64, keep bool) ([]byte, error) {
	var prefix [4]byte
	if *left < int64(len(prefix)) {
		return nil, l.malformed("the length of its %s takes %d bytes, the file has %d more", what, len(prefix), *left)
	}
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, l.unreadable(err)
	}
	*left -= int64(len(prefix))
	n := int64(binary.LittleEndian.Uint32(prefix[:]))
	if n > *left {
		return nil, l.malformed("its %s takes %d bytes, the file has %d more", what, n, *left)
	}
	*left -= n
	if !keep {
		_, err := io.CopyN(io.Discard, r, n)
		return nil, l.unreadable(err)
	}
	if n > l.limit {
		return nil, l.malformed("its %s takes %d bytes, the most is %d", what, n, l.limit)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, l.unreadable(err)
}

// malformed returns an error about the record at l.offset.
func (l *recordLog) malformed(format string, args ...any) error {
	return fmt.Errorf("%w: the record at byte %d cannot be read: %s (a writer was killed midway, or "+
		"this is not a store's file: remove it and restart the job)",
		kvstore.ErrProtocol, l.offset, fmt.Sprintf(format, args...))
}

// unreadable returns the error of a read that should have succeeded.
func (l *recordLog) unreadable(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: the file was cut short while the record at byte %d was read", kvstore.ErrProtocol, l.offset)
	}
	return fmt.Errorf("read the record at byte %d: %w: %w", l.offset, kvstore.ErrConnection, err)
}

// checkSize returns an error if records are too large to be written.
func (l *recordLog) checkSize(records []record) error {
	after := l.size
	for _, r := range records {
		if size := int64(len(r.key)) + int64(len(r.value)); size > l.limit {
			return fmt.Errorf("%w: a key and value of %d bytes, the most is %d", kvstore.ErrProtocol, size, l.limit)
		}
		after += l.sizeAfter(r) - l.size
	}
	if after > l.limit {
		return fmt.Errorf("%w: %d bytes of keys and values, the most is %d", kvstore.ErrProtocol, after, l.limit)
	}
	return nil
}

// sizeAfter returns l.size as it would be after r is applied.
func (l *recordLog) sizeAfter(r record) int64 {
	if strings.HasPrefix(r.key, deletePrefix) {
		return l.size
	}
	old, ok := l.data[r.key]
	if ok {
		return l.size - int64(len(old)) + int64(len(r.value))
	}
	return l.size + int64(len(r.key)) + int64(len(r.value))
}

// apply carries out r in memory and keeps its value.
func (l *recordLog) apply(r record) {
	if key, deletion := strings.CutPrefix(r.key, deletePrefix); deletion {
		if old, ok := l.data[key]; ok {
			l.size -= int64(len(key)) + int64(len(old))
			delete(l.data, key)
		}
		return
	}
	l.size = l.sizeAfter(r)
	l.data[r.key] = r.value
	for w := range l.waits {
		delete(w.missing, r.key)
	}
}

// sum returns the number under key plus delta, wrapped around at 64 bits. An empty value counts as a missing one, as
// in torch's FileStore and unlike in its TCPStore.
func (l *recordLog) sum(key string, delta int64) (int64, error) {
	old := l.data[key]
	if len(old) == 0 {
		return delta, nil
	}
	n, err := keyspace.ParseInt(old)
	return n + delta, err
}

// missing returns the keys that are not present.
func (l *recordLog) missing(keys []string) map[string]struct{} {
	missing := map[string]struct{}{}
	for _, key := range keys {
		if _, ok := l.data[key]; !ok {
			missing[key] = struct{}{}
		}
	}
	return missing
}
