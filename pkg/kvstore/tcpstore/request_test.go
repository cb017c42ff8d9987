package tcpstore

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// encode encodes a request of p: strings and byte slices as keys or values, ints as i or n, uint32 as w.
func encode(p Protocol, o op, fields ...any) []byte {
	if p == ProtocolV1 && o != opDelete {
		o--
	}
	b := []byte{byte(o)}
	for _, field := range fields {
		switch f := field.(type) {
		case string:
			b = appendValue(b, []byte(f))
		case []byte:
			b = appendValue(b, f)
		case int:
			b = appendInt(b, int64(f))
		case uint32:
			b = binary.LittleEndian.AppendUint32(b, f)
		default:
			panic(fmt.Sprintf("no wire format for %T", field))
		}
	}
	return b
}

var handshake = encode(ProtocolV2, opValidate, magicNumber)

// recording is one recorded call.
type recording struct {
	Op       string
	C2S, S2C []byte
}

// recordings returns the recorded calls of each torch version.
func recordings(t testing.TB) map[string][]recording {
	t.Helper()
	files, err := filepath.Glob("../../../testdata/wire/torch-*.json")
	if err != nil || len(files) != 4 {
		t.Fatalf("recordings: %q, %v", files, err)
	}
	versions := map[string][]recording{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var content struct {
			Torch      string
			Transcript []struct{ Op, C2S, S2C string }
		}
		if err := json.Unmarshal(text, &content); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, entry := range content.Transcript {
			c2s, err1 := hex.DecodeString(entry.C2S)
			s2c, err2 := hex.DecodeString(entry.S2C)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatalf("%s: %s: %v", file, entry.Op, err)
			}
			versions[content.Torch] = append(versions[content.Torch], recording{entry.Op, c2s, s2c})
		}
	}
	return versions
}

func TestDetectProtocol(t *testing.T) {
	tests := []struct {
		first string // hex
		want  Protocol
	}{
		{"", protocolUnknown},
		{"00", protocolUnknown},
		{"00ce", protocolUnknown},
		{"00cef785", protocolUnknown},
		{"00cef7853c", ProtocolV2},
		{"00cef7853c0d", ProtocolV2},
		{"0002", ProtocolV1},
		{"00cef7853d", ProtocolV1},
		{"00ce000000000000002f", ProtocolV1}, // a key of 206 bytes
		{"03", ProtocolV1},
		{"07", ProtocolV1},
		{"80", ProtocolV1}, // and then an unknown op
	}
	for _, tt := range tests {
		b, _ := hex.DecodeString(tt.first)
		if got := detectProtocol(b); got != tt.want {
			t.Errorf("detect(%s) = %v, want %v", tt.first, got, tt.want)
		}
	}
}

// plain is a decoded request with copies of its fields.
type plain struct {
	op     op
	number uint64
	keys   []string
	values []string
}

func plainOf(r *request) plain {
	req := plain{op: r.op, number: r.number}
	for i := range r.keys {
		req.keys = append(req.keys, strings.Clone(r.key(i)))
	}
	for i := range r.values {
		req.values = append(req.values, string(r.value(i)))
	}
	return req
}

// decodeAll decodes stream. The decoder first sees it up to each of cuts, then all of it.
func decodeAll(p Protocol, stream []byte, cuts ...int) (reqs []plain, busy bool, err error) {
	d := decoder{protocol: p}
	start := 0
	for _, cut := range append(cuts, len(stream)) {
		for {
			// A copy without spare room detects a decoder that keeps or overruns its input.
			seen := bytes.Clone(stream[start:max(start, cut)])
			n, err := d.decode(seen)
			if err != nil {
				return reqs, d.at > 0, err
			}
			if n == 0 {
				if d.need <= len(seen) {
					return reqs, d.at > 0, fmt.Errorf("decoder has %d bytes and needs %d", len(seen), d.need)
				}
				break
			}
			reqs = append(reqs, plainOf(&d.req))
			clear(seen)
			start += n
		}
	}
	return reqs, d.at > 0, nil
}

var equalRequests = cmp.AllowUnexported(plain{})

func TestDecode(t *testing.T) {
	long := strings.Repeat("long", 200)
	tests := []struct {
		name   string
		stream []byte
		want   plain
	}{
		{"validate", handshake, plain{op: opValidate, number: uint64(magicNumber)}},
		{"ping", encode(ProtocolV2, opPing, uint32(7)), plain{op: opPing, number: 7}},
		{"set", encode(ProtocolV2, opSet, "k", long), plain{op: opSet, keys: []string{"k"}, values: []string{long}}},
		{"set empty", encode(ProtocolV2, opSet, "", ""), plain{op: opSet, keys: []string{""}, values: []string{""}}},
		{"append", encode(ProtocolV2, opAppend, "k", "v"), plain{op: opAppend, keys: []string{"k"}, values: []string{"v"}}},
		{
			"compare set", encode(ProtocolV2, opCompareSet, "k", "", "d"),
			plain{op: opCompareSet, keys: []string{"k"}, values: []string{"", "d"}},
		},
		{"get", encode(ProtocolV2, opGet, "k"), plain{op: opGet, keys: []string{"k"}}},
		{"delete", encode(ProtocolV2, opDelete, "k"), plain{op: opDelete, keys: []string{"k"}}},
		{"add", encode(ProtocolV2, opAdd, "k", -2), plain{op: opAdd, keys: []string{"k"}, number: 1<<64 - 2}},
		{"num keys", encode(ProtocolV2, opNumKeys), plain{op: opNumKeys}},
		{"cancel", encode(ProtocolV2, opCancelWait), plain{op: opCancelWait}},
		{"check nothing", encode(ProtocolV2, opCheck, 0), plain{op: opCheck}},
		{"wait", encode(ProtocolV2, opWait, 2, "a", "bc"), plain{op: opWait, keys: []string{"a", "bc"}}},
		{"multi get", encode(ProtocolV2, opMultiGet, 1, "a"), plain{op: opMultiGet, keys: []string{"a"}}},
		{
			"multi set", encode(ProtocolV2, opMultiSet, 2, "a", "1", "b", ""),
			plain{op: opMultiSet, keys: []string{"a", "b"}, values: []string{"1", ""}},
		},
		{
			"queue push", encode(ProtocolV2, opQueuePush, "q", "v"),
			plain{op: opQueuePush, keys: []string{"q"}, values: []string{"v"}},
		},
		{"queue pop", encode(ProtocolV2, opQueuePop, "q"), plain{op: opQueuePop, keys: []string{"q"}}},
		{"queue len", encode(ProtocolV2, opQueueLen, "q"), plain{op: opQueueLen, keys: []string{"q"}}},
		{"list keys", encode(ProtocolV2, opListKeys), plain{op: opListKeys}},
		{"barrier", encode(ProtocolV2, opBarrier, "b", 3), plain{op: opBarrier, keys: []string{"b"}, number: 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// Twice, so that the end of a request is checked too, and cut once at every position.
			stream := append(bytes.Clone(tt.stream), tt.stream...)
			for cut := range stream {
				got, busy, err := decodeAll(ProtocolV2, stream, cut)
				if err != nil || busy {
					t.Fatalf("cut at %d: busy %v, %v", cut, busy, err)
				}
				if diff := cmp.Diff([]plain{tt.want, tt.want}, got, equalRequests); diff != "" {
					t.Fatalf("cut at %d (-want +got):\n%s", cut, diff)
				}
			}
		})
	}
}

func TestDecodeLimits(t *testing.T) {
	fit := map[string][]byte{
		"longest key":   encode(ProtocolV2, opGet, strings.Repeat("k", maxKey)),
		"longest value": encode(ProtocolV2, opSet, "k", make([]byte, maxValue)),
		"most keys":     append(encode(ProtocolV2, opCheck, maxKeys), make([]byte, 8*maxKeys)...),
	}
	for name, stream := range fit {
		if reqs, _, err := decodeAll(ProtocolV2, stream); len(reqs) != 1 || err != nil {
			t.Errorf("%s: %d requests, %v", name, len(reqs), err)
		}
	}
	// The stream ends after the length, which must suffice to reject it.
	tooMuch := map[string][]byte{
		"key":               encode(ProtocolV2, opGet, maxKey+1),
		"key of 2^63":       encode(ProtocolV2, opGet, -1<<63),
		"key of 2^64-1":     encode(ProtocolV2, opGet, -1),
		"value":             encode(ProtocolV2, opSet, "k", maxValue+1),
		"value of 2^63":     encode(ProtocolV2, opSet, "k", -1<<63),
		"second value":      encode(ProtocolV2, opCompareSet, "k", "v", maxValue+1),
		"keys":              encode(ProtocolV2, opWait, maxKeys+1),
		"2^63 keys":         encode(ProtocolV2, opMultiGet, -1<<63),
		"2^64-1 pairs":      encode(ProtocolV2, opMultiSet, -1),
		"key in multi set":  encode(ProtocolV2, opMultiSet, 2, "a", "1", maxKey+1),
		"value in multiset": encode(ProtocolV2, opMultiSet, 1, "a", maxValue+1),
	}
	for name, stream := range tooMuch {
		_, _, err := decodeAll(ProtocolV2, stream)
		if r, ok := errors.AsType[*refusal](err); !ok || r.reason != ReasonMalformed {
			t.Errorf("%s: error %v, want a malformed request", name, err)
		}
	}
}

func TestDecodeLimitsWholeRequest(t *testing.T) {
	d := decoder{protocol: ProtocolV2}
	pair := append(appendValue(nil, []byte("k")), appendValue(nil, make([]byte, maxValue))...)
	stream := append(make([]byte, 0, maxRequest+2*len(pair)), encode(ProtocolV2, opMultiSet, maxKeys)...)
	pairs := 0
	for pairs < 100 {
		if _, err := d.decode(stream); err != nil {
			break
		}
		stream = append(stream, pair...)
		pairs++
	}
	if want := maxRequest / maxValue; pairs != want {
		t.Errorf("refused behind %d pairs, want %d", pairs, want)
	}
}

func TestTakeValue(t *testing.T) {
	long := make([]byte, 100_000)
	tests := []struct {
		name    string
		request []byte
		room    int // besides the request
		given   bool
	}{
		{"long", encode(ProtocolV2, opSet, "k", long), 0, true},
		{"long, with some room", encode(ProtocolV2, opSet, "k", long), 10_000, true},
		{"long, in large memory", encode(ProtocolV2, opSet, "k", long), 20_000, false},
		{"long, not to give", encode(ProtocolV2, opSet, "k", long), -1, false},
		{"short", encode(ProtocolV2, opSet, "k", long[:1000]), 0, false},
		{"one of three", encode(ProtocolV2, opMultiSet, 3, "k", long, "l", long, "m", long), 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := decoder{protocol: ProtocolV2}
			if _, err := d.decode(tt.request); err != nil {
				t.Fatal(err)
			}
			if tt.room >= 0 {
				d.req.room = len(tt.request) + tt.room
			}
			value := d.req.takeValue(0)
			same := &value[0] == &d.req.value(0)[0]
			if same != tt.given || d.req.given != tt.given {
				t.Errorf("gave its bytes: %v, says so: %v; want %v", same, d.req.given, tt.given)
			}
			if cap(value) > len(value)+len(value)/4 {
				t.Errorf("a value of %d bytes has room for %d", len(value), cap(value))
			}
		})
	}
}

func FuzzDecodeProtocolV1(f *testing.F) { fuzzDecode(f, ProtocolV1) }
func FuzzDecodeProtocolV2(f *testing.F) { fuzzDecode(f, ProtocolV2) }

// fuzzDecode checks that any stream means the same in one piece, in two and byte by byte, and that a decoded request
// is within its limits and encodes to the bytes that were read.
func fuzzDecode(f *testing.F, p Protocol) {
	f.Helper()
	for version, calls := range recordings(f) {
		if strings.HasPrefix(version, "1.") != (p == ProtocolV1) {
			continue
		}
		var all []byte
		for i, call := range calls {
			f.Add(call.C2S, uint(i))
			all = append(all, call.C2S...)
		}
		f.Add(all, uint(100))
	}
	f.Fuzz(func(t *testing.T, stream []byte, cut uint) {
		whole, busy, err := decodeAll(p, stream)
		each := make([]int, len(stream))
		for i := range each {
			each[i] = i
		}
		var read []byte
		for _, req := range whole {
			if len(req.keys) > maxKeys || len(req.values) > 2*len(req.keys) {
				t.Fatalf("%d keys and %d values", len(req.keys), len(req.values))
			}
			read = append(read, encodeRequest(p, req)...)
		}
		if !bytes.HasPrefix(stream, read) || (err == nil && !busy && len(read) < len(stream)) {
			t.Fatalf("read %x from %x", read, stream)
		}
		for _, cuts := range [][]int{{int(cut % uint(len(stream)+1))}, each} {
			got, gotBusy, gotErr := decodeAll(p, stream, cuts...)
			if gotBusy != busy || fmt.Sprint(gotErr) != fmt.Sprint(err) {
				t.Fatalf("in pieces: busy %v, %v; in one: %v, %v", gotBusy, gotErr, busy, err)
			}
			if !slices.EqualFunc(whole, got, func(a, b plain) bool {
				return a.op == b.op && a.number == b.number && slices.Equal(a.keys, b.keys) && slices.Equal(a.values, b.values)
			}) {
				t.Fatalf("in one piece and in pieces:\n%s", cmp.Diff(whole, got, equalRequests))
			}
		}
	})
}

// encodeRequest is the inverse of decode.
func encodeRequest(p Protocol, req plain) []byte {
	var fields []any
	switch req.op {
	case opValidate, opPing:
		fields = append(fields, uint32(req.number))
	case opCheck, opWait, opMultiGet, opMultiSet:
		fields = append(fields, len(req.keys))
	}
	values := req.values
	for _, key := range req.keys {
		fields = append(fields, key)
		if req.op == opMultiSet {
			fields = append(fields, values[0])
			values = values[1:]
		}
	}
	for _, value := range values {
		fields = append(fields, value)
	}
	if req.op == opAdd || req.op == opBarrier {
		fields = append(fields, int(req.number))
	}
	return encode(p, req.op, fields...)
}
