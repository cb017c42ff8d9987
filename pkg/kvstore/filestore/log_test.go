package filestore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// specFile is the start of a file that torch 2.14.1 wrote (numWorkers 2): open, set k=v1, add n 5, delete k, append
// a=xy.
const specFile = "09000000 726566636f756e742f 01000000 31 02000000 2f6b 02000000 7631 02000000 2f6e 01000000 35 " +
	"03000000 2d2f6b 00000000 02000000 2f61 02000000 7879"

func specBytes(t testing.TB) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(specFile, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func rawRecords(pairs ...string) (b []byte) {
	for _, s := range pairs {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	return b
}

// parseFile is a simple parser: it returns the content of all complete records and the offset of the first incomplete
// one.
func parseFile(b []byte) (data map[string]string, offset int) {
	data = map[string]string{}
	field := func(at int) (string, int, bool) {
		if len(b)-at < 4 {
			return "", 0, false
		}
		n := int(binary.LittleEndian.Uint32(b[at:]))
		if len(b)-at-4 < n {
			return "", 0, false
		}
		return string(b[at+4 : at+4+n]), at + 4 + n, true
	}
	for offset < len(b) {
		key, at, ok := field(offset)
		if !ok {
			break
		}
		value, end, ok := field(at)
		if !ok {
			break
		}
		if strings.HasPrefix(key, "-") {
			delete(data, key[1:])
		} else {
			data[key] = value
		}
		offset = end
	}
	return data, offset
}

// logState returns the content of l as text.
func logState(l *recordLog) map[string]string {
	data := map[string]string{}
	for key, value := range l.data {
		data[key] = string(value)
	}
	return data
}

func replayBytes(l *recordLog, b []byte) error {
	return l.replay(bufio.NewReader(bytes.NewReader(b[l.offset:])), int64(len(b)))
}

// TestReplayOfCutFiles cuts a file at every byte.
func TestReplayOfCutFiles(t *testing.T) {
	odd := rawRecords("", "", "-", "x", "--", "", "/k", "", "k", "v", "-k", "ignored", "/k", "again")
	whole := append(specBytes(t), odd...)
	l := newRecordLog()
	for end := range len(whole) + 1 {
		want, offset := parseFile(whole[:end])
		for name, l := range map[string]*recordLog{"at once": newRecordLog(), "bit by bit": l} {
			err := replayBytes(l, whole[:end])
			if (err == nil) != (offset == end) || err != nil && !errors.Is(err, kvstore.ErrProtocol) {
				t.Fatalf("%s, %d bytes: %v", name, end, err)
			}
			if diff := cmp.Diff(want, logState(l)); diff != "" || l.offset != int64(offset) {
				t.Fatalf("%s, %d bytes: offset %d, want %d; keys (-want +got):\n%s", name, end, l.offset, offset, diff)
			}
			if held := heldBytes(l); l.size != held {
				t.Fatalf("%s, %d bytes: held %d, want %d", name, end, l.size, held)
			}
		}
	}
}

func heldBytes(l *recordLog) (n int64) {
	for key, value := range l.data {
		n += int64(len(key) + len(value))
	}
	return n
}

func TestReplayErrors(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		file       []byte
		limit      int64
	}{
		{
			name: "length", file: append(rawRecords("/a", "b"), 1, 0),
			want: "the record at byte 11 cannot be read: the length of its key takes 4 bytes, the file has 2 more",
		},
		{
			name: "key", file: []byte("\xff\xff\xff\xffabc"),
			want: "byte 0 cannot be read: its key takes 4294967295 bytes, the file has 3 more",
		},
		{
			name: "value", file: []byte("\x01\x00\x00\x00k\x00\x00\x00\x80abc"),
			want: "its value takes 2147483648 bytes, the file has 3 more",
		},
		{name: "large value", file: rawRecords("/a", "12345"), limit: 4, want: "its value takes 5 bytes, the most is 4"},
		{
			name: "large sum", file: rawRecords("/a", "12", "/b", "12"), limit: 7,
			want: "byte 12 cannot be read: more than 7 bytes",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newRecordLog()
			if tt.limit > 0 {
				l.limit = tt.limit
			}
			if err := replayBytes(l, tt.file); !errors.Is(err, kvstore.ErrProtocol) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	l := newRecordLog()
	broken := errors.New("disk on fire")
	err := l.replay(bufio.NewReader(iotest.ErrReader(broken)), 9)
	if !errors.Is(err, broken) || !errors.Is(err, kvstore.ErrConnection) {
		t.Errorf("read error became %v", err)
	}
	if err := l.replay(bufio.NewReader(strings.NewReader("abc")), 9); !errors.Is(err, kvstore.ErrProtocol) {
		t.Errorf("a file cut short under the reader: %v", err)
	}
}

// FuzzFileRecords opens arbitrary bytes as a store's file and performs every operation.
func FuzzFileRecords(f *testing.F) {
	spec := specBytes(f)
	f.Add(spec)
	f.Add(spec[:len(spec)-3])
	f.Add([]byte{})
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add(rawRecords("refcount/", "abc"))
	f.Add(rawRecords("refcount/", "9223372036854775807", "cleanup/", "-9223372036854775809", "", "", "-", ""))
	f.Add(append(rawRecords("/k", "12abc", "-/k", "x", "/k", ""), 0xff, 0xff, 0xff, 0x7f))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "store")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		useAnyFile(t, path, content)
		runtime.ReadMemStats(&after)
		if took, most := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+100*len(content)); took > most {
			t.Errorf("allocated %d bytes for a file of %d", took, len(content))
		}
	})
}

func useAnyFile(t *testing.T, path string, content []byte) {
	t.Helper()
	data, offset := parseFile(content)
	s, err := Open(t.Context(), path, Options{Workers: 1})
	if err != nil {
		now, _ := os.ReadFile(path)
		if !errors.Is(err, kvstore.ErrProtocol) || !bytes.Equal(now, content) {
			t.Fatalf("%v; file was %q, is %q", err, content, now)
		}
		return
	}
	if offset != len(content) {
		t.Fatalf("opened a file that is whole only up to byte %d of %d", offset, len(content))
	}
	delete(data, refcountKey)
	got := logState(s.log)
	delete(got, refcountKey)
	if diff := cmp.Diff(data, got); diff != "" {
		t.Fatalf("keys (-want +got):\n%s", diff)
	}
	// The past deadline ends Get, MultiGet and Wait if a key is missing; nothing else waits.
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	m := &fileModel{data: logState(s.log)}
	v := [][]byte{[]byte("v"), []byte("w")}
	for _, op := range []storeOp{
		{Op: "get", Keys: []string{"k"}},
		{Op: "multi_get", Keys: []string{"k", ""}},
		{Op: "wait", Keys: []string{"k", "k"}},
		{Op: "check", Keys: []string{"k"}},
		{Op: "add", Keys: []string{"k"}, N: 1},
		{Op: "compare_set", Keys: []string{"k"}, Values: v},
		{Op: "append", Keys: []string{"k"}, Values: v},
		{Op: "num_keys"},
		{Op: "delete", Keys: []string{"k"}},
		{Op: "set", Keys: []string{"k"}, Values: v},
		{Op: "multi_set", Keys: []string{"k", "l"}, Values: v},
	} {
		if diff := diffResults(m.do(op), doStoreOp(over, s, op)); diff != "" {
			t.Fatalf("%s %q (-want +got):\n%s", op.Op, op.Keys, diff)
		}
	}
	if _, err := s.ListKeys(over); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil && !errors.Is(err, kvstore.ErrProtocol) {
		t.Fatal(err)
	}
}
