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

// encode encodes a request of g: strings and byte slices as keys or values, ints as i or n, uint32 as w.
func encode(g Generation, o op, fields ...any) []byte {
	if g == FirstGeneration && o != opDelete {
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

var handshake = encode(TodaysGeneration, opValidate, magicNumber)

// recording is one recorded call.
type recording struct {
	Op       string
	C2S, S2C []byte
}

// recordings returns the recorded calls of each torch version.
func recordings(t testing.TB) map[string][]recording {
	t.Helper()
	files, err := filepath.Glob("../../../testdata/wire/torch-*.json")
	if err != nil || len(files) != 3 {
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

func TestDetect(t *testing.T) {
	tests := []struct {
		first string // hex
		want  Generation
	}{
		{"", unknownGeneration},
		{"00", unknownGeneration},
		{"00ce", unknownGeneration},
		{"00cef785", unknownGeneration},
		{"00cef7853c", TodaysGeneration},
		{"00cef7853c0d", TodaysGeneration},
		{"0002", FirstGeneration},
		{"00cef7853d", FirstGeneration},
		{"00ce000000000000002f", FirstGeneration}, // a key of 206 bytes
		{"03", FirstGeneration},
		{"07", FirstGeneration},
		{"80", FirstGeneration}, // and then an unknown op
	}
	for _, tt := range tests {
		b, _ := hex.DecodeString(tt.first)
		if got := detect(b); got != tt.want {
			t.Errorf("detect(%s) = %v, want %v", tt.first, got, tt.want)
		}
	}
}

// plain is a request on its own.
type plain struct {
	op     op
	number uint64
	keys   []string
	values []string
}

func plainOf(r *request) plain {
	p := plain{op: r.op, number: r.number}
	for i := range r.keys {
		p.keys = append(p.keys, strings.Clone(r.key(i)))
	}
	for i := range r.values {
		p.values = append(p.values, string(r.value(i)))
	}
	return p
}

// decodeAll decodes stream, of which the decoder sees more and more, up to each of cuts.
func decodeAll(g Generation, stream []byte, cuts ...int) (reqs []plain, busy bool, err error) {
	d := decoder{generation: g}
	start := 0
	for _, cut := range append(cuts, len(stream)) {
		for {
			// A copy without spare room: a decoder that keeps or overruns its input is found out.
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
		{"ping", encode(TodaysGeneration, opPing, uint32(7)), plain{op: opPing, number: 7}},
		{"set", encode(TodaysGeneration, opSet, "k", long), plain{op: opSet, keys: []string{"k"}, values: []string{long}}},
		{"set empty", encode(TodaysGeneration, opSet, "", ""), plain{op: opSet, keys: []string{""}, values: []string{""}}},
		{"append", encode(TodaysGeneration, opAppend, "k", "v"), plain{op: opAppend, keys: []string{"k"}, values: []string{"v"}}},
		{
			"compare set", encode(TodaysGeneration, opCompareSet, "k", "", "d"),
			plain{op: opCompareSet, keys: []string{"k"}, values: []string{"", "d"}},
		},
		{"get", encode(TodaysGeneration, opGet, "k"), plain{op: opGet, keys: []string{"k"}}},
		{"delete", encode(TodaysGeneration, opDelete, "k"), plain{op: opDelete, keys: []string{"k"}}},
		{"add", encode(TodaysGeneration, opAdd, "k", -2), plain{op: opAdd, keys: []string{"k"}, number: 1<<64 - 2}},
		{"num keys", encode(TodaysGeneration, opNumKeys), plain{op: opNumKeys}},
		{"cancel", encode(TodaysGeneration, opCancelWait), plain{op: opCancelWait}},
		{"check nothing", encode(TodaysGeneration, opCheck, 0), plain{op: opCheck}},
		{"wait", encode(TodaysGeneration, opWait, 2, "a", "bc"), plain{op: opWait, keys: []string{"a", "bc"}}},
		{"multi get", encode(TodaysGeneration, opMultiGet, 1, "a"), plain{op: opMultiGet, keys: []string{"a"}}},
		{
			"multi set", encode(TodaysGeneration, opMultiSet, 2, "a", "1", "b", ""),
			plain{op: opMultiSet, keys: []string{"a", "b"}, values: []string{"1", ""}},
		},
		{"queue push", encode(TodaysGeneration, opQueuePush, "q", "v"), plain{op: opQueuePush, keys: []string{"q"}, values: []string{"v"}}},
		{"queue pop", encode(TodaysGeneration, opQueuePop, "q"), plain{op: opQueuePop, keys: []string{"q"}}},
		{"queue len", encode(TodaysGeneration, opQueueLen, "q"), plain{op: opQueueLen, keys: []string{"q"}}},
		{"list keys", encode(TodaysGeneration, opListKeys), plain{op: opListKeys}},
		{"barrier", encode(TodaysGeneration, opBarrier, "b", 3), plain{op: opBarrier, keys: []string{"b"}, number: 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// Twice, so that the end of a request is checked too; cut once, at every place.
			stream := append(bytes.Clone(tt.stream), tt.stream...)
			for cut := range stream {
				got, busy, err := decodeAll(TodaysGeneration, stream, cut)
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

func TestDecodeBounds(t *testing.T) {
	fit := map[string][]byte{
		"longest key":   encode(TodaysGeneration, opGet, strings.Repeat("k", maxKey)),
		"longest value": encode(TodaysGeneration, opSet, "k", make([]byte, maxValue)),
		"most keys":     append(encode(TodaysGeneration, opCheck, maxKeys), make([]byte, 8*maxKeys)...),
	}
	for name, stream := range fit {
		if reqs, _, err := decodeAll(TodaysGeneration, stream); len(reqs) != 1 || err != nil {
			t.Errorf("%s: %d requests, %v", name, len(reqs), err)
		}
	}
	// Only the lengths are sent: nothing more may be needed to refuse them.
	tooMuch := map[string][]byte{
		"key":               encode(TodaysGeneration, opGet, maxKey+1),
		"key of 2^63":       encode(TodaysGeneration, opGet, -1<<63),
		"key of 2^64-1":     encode(TodaysGeneration, opGet, -1),
		"value":             encode(TodaysGeneration, opSet, "k", maxValue+1),
		"value of 2^63":     encode(TodaysGeneration, opSet, "k", -1<<63),
		"second value":      encode(TodaysGeneration, opCompareSet, "k", "v", maxValue+1),
		"keys":              encode(TodaysGeneration, opWait, maxKeys+1),
		"2^63 keys":         encode(TodaysGeneration, opMultiGet, -1<<63),
		"2^64-1 pairs":      encode(TodaysGeneration, opMultiSet, -1),
		"key in multi set":  encode(TodaysGeneration, opMultiSet, 2, "a", "1", maxKey+1),
		"value in multiset": encode(TodaysGeneration, opMultiSet, 1, "a", maxValue+1),
	}
	for name, stream := range tooMuch {
		_, _, err := decodeAll(TodaysGeneration, stream)
		if r, ok := errors.AsType[*refusal](err); !ok || r.reason != ReasonMalformed {
			t.Errorf("%s: error %v, want a malformed request", name, err)
		}
	}
}

func TestDecodeBoundsARequestAsAWhole(t *testing.T) {
	d := decoder{generation: TodaysGeneration}
	pair := append(appendValue(nil, []byte("k")), appendValue(nil, make([]byte, maxValue))...)
	stream := encode(TodaysGeneration, opMultiSet, maxKeys)
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

func TestKeep(t *testing.T) {
	long := make([]byte, 100_000)
	tests := []struct {
		name    string
		request []byte
		room    int // besides the request
		given   bool
	}{
		{"long", encode(TodaysGeneration, opSet, "k", long), 0, true},
		{"long, with some room", encode(TodaysGeneration, opSet, "k", long), 10_000, true},
		{"long, in large memory", encode(TodaysGeneration, opSet, "k", long), 20_000, false},
		{"long, not to give", encode(TodaysGeneration, opSet, "k", long), -1, false},
		{"short", encode(TodaysGeneration, opSet, "k", long[:1000]), 0, false},
		{"one of three", encode(TodaysGeneration, opMultiSet, 3, "k", long, "l", long, "m", long), 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := decoder{generation: TodaysGeneration}
			if _, err := d.decode(tt.request); err != nil {
				t.Fatal(err)
			}
			if tt.room >= 0 {
				d.req.room = len(tt.request) + tt.room
			}
			value := d.req.keep(0)
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

func FuzzDecodeFirstGeneration(f *testing.F)  { fuzzDecode(f, FirstGeneration) }
func FuzzDecodeTodaysGeneration(f *testing.F) { fuzzDecode(f, TodaysGeneration) }

// fuzzDecode checks that any stream means the same in one piece, in two and byte by byte, and that a
// decoded request is within its bounds and encodes to what was read.
func fuzzDecode(f *testing.F, g Generation) {
	f.Helper()
	for version, calls := range recordings(f) {
		if strings.HasPrefix(version, "1.") != (g == FirstGeneration) {
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
		whole, busy, err := decodeAll(g, stream)
		each := make([]int, len(stream))
		for i := range each {
			each[i] = i
		}
		var read []byte
		for _, req := range whole {
			if len(req.keys) > maxKeys || len(req.values) > 2*len(req.keys) {
				t.Fatalf("%d keys and %d values", len(req.keys), len(req.values))
			}
			read = append(read, encodeRequest(g, req)...)
		}
		if !bytes.HasPrefix(stream, read) || (err == nil && !busy && len(read) < len(stream)) {
			t.Fatalf("read %x from %x", read, stream)
		}
		for _, cuts := range [][]int{{int(cut % uint(len(stream)+1))}, each} {
			got, gotBusy, gotErr := decodeAll(g, stream, cuts...)
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
func encodeRequest(g Generation, req plain) []byte {
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
	return encode(g, req.op, fields...)
}
