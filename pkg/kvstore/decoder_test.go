package kvstore

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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
	files, err := filepath.Glob("../../testdata/wire/torch-*.json")
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

// decodeAll decodes stream, handed over in pieces that end before each of cuts.
func decodeAll(g Generation, stream []byte, cuts ...int) (reqs []*request, busy bool, err error) {
	d := decoder{generation: g}
	start := 0
	for _, cut := range append(cuts, len(stream)) {
		// A copy without spare room: a decoder that keeps or overruns its input is found out.
		piece := bytes.Clone(stream[start:cut])
		start = cut
		for {
			rest, req, err := d.decode(piece)
			if err != nil {
				return reqs, d.busy, err
			}
			if req == nil {
				break
			}
			reqs = append(reqs, req)
			piece = rest
		}
		clear(piece[:cap(piece)])
	}
	return reqs, d.busy, nil
}

var equalRequests = cmp.AllowUnexported(request{})

func TestDecode(t *testing.T) {
	long := strings.Repeat("long", 200)
	tests := []struct {
		name   string
		stream []byte
		want   request
	}{
		{"validate", handshake, request{op: opValidate, number: uint64(magicNumber)}},
		{"ping", encode(TodaysGeneration, opPing, uint32(7)), request{op: opPing, number: 7}},
		{"set", encode(TodaysGeneration, opSet, "k", long), request{op: opSet, keys: []string{"k"}, values: [][]byte{[]byte(long)}}},
		{"set empty", encode(TodaysGeneration, opSet, "", ""), request{op: opSet, keys: []string{""}, values: [][]byte{nil}}},
		{"append", encode(TodaysGeneration, opAppend, "k", "v"), request{op: opAppend, keys: []string{"k"}, values: [][]byte{[]byte("v")}}},
		{
			"compare set", encode(TodaysGeneration, opCompareSet, "k", "", "d"),
			request{op: opCompareSet, keys: []string{"k"}, values: [][]byte{nil, []byte("d")}},
		},
		{"get", encode(TodaysGeneration, opGet, "k"), request{op: opGet, keys: []string{"k"}}},
		{"delete", encode(TodaysGeneration, opDelete, "k"), request{op: opDelete, keys: []string{"k"}}},
		{"add", encode(TodaysGeneration, opAdd, "k", -2), request{op: opAdd, keys: []string{"k"}, number: 1<<64 - 2}},
		{"num keys", encode(TodaysGeneration, opNumKeys), request{op: opNumKeys}},
		{"cancel", encode(TodaysGeneration, opCancelWait), request{op: opCancelWait}},
		{"check nothing", encode(TodaysGeneration, opCheck, 0), request{op: opCheck}},
		{"wait", encode(TodaysGeneration, opWait, 2, "a", "bc"), request{op: opWait, keys: []string{"a", "bc"}}},
		{"multi get", encode(TodaysGeneration, opMultiGet, 1, "a"), request{op: opMultiGet, keys: []string{"a"}}},
		{
			"multi set", encode(TodaysGeneration, opMultiSet, 2, "a", "1", "b", ""),
			request{op: opMultiSet, keys: []string{"a", "b"}, values: [][]byte{[]byte("1"), nil}},
		},
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
				if len(got) != 2 {
					t.Fatalf("cut at %d: %d requests, want 2", cut, len(got))
				}
				for _, req := range got {
					if !sameRequest(&tt.want, req) {
						t.Fatalf("cut at %d (-want +got):\n%s", cut, cmp.Diff(&tt.want, req, equalRequests))
					}
				}
			}
		})
	}
}

// sameRequest is quicker than cmp and takes no value and an empty one for equal.
func sameRequest(a, b *request) bool {
	if a.op != b.op || a.number != b.number || len(a.keys) != len(b.keys) || len(a.values) != len(b.values) {
		return false
	}
	for i := range a.keys {
		if a.keys[i] != b.keys[i] {
			return false
		}
	}
	for i := range a.values {
		if !bytes.Equal(a.values[i], b.values[i]) {
			return false
		}
	}
	return true
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

func TestDecodeBoundsAllKeysAndValuesTogether(t *testing.T) {
	d := decoder{generation: TodaysGeneration}
	pair := append(appendValue(nil, []byte("k")), appendValue(nil, make([]byte, maxValue))...)
	if _, _, err := d.decode(encode(TodaysGeneration, opMultiSet, maxKeys)); err != nil {
		t.Fatal(err)
	}
	pairs := 0
	for pairs < 100 {
		if _, _, err := d.decode(pair); err != nil {
			break
		}
		d.req = request{} // what came is of no interest, and the test is to stay small
		pairs++
	}
	if want := maxRequest/maxValue - 1; pairs != want {
		t.Errorf("refused after %d pairs, want %d", pairs, want)
	}
}

func TestDecodeSetsNoMemoryAsideForClaims(t *testing.T) {
	claims := map[string][]byte{
		"value": append(encode(TodaysGeneration, opSet, "k", maxValue), "v"...),
		"keys":  encode(TodaysGeneration, opWait, maxKeys, "k"),
		"pairs": encode(TodaysGeneration, opMultiSet, maxKeys, "k", "v", "k", maxValue),
	}
	for name, stream := range claims {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 100 {
			if _, busy, err := decodeAll(TodaysGeneration, stream); !busy || err != nil {
				t.Fatalf("%s: busy %v, %v", name, busy, err)
			}
		}
		runtime.ReadMemStats(&after)
		if used := (after.TotalAlloc - before.TotalAlloc) / 100; used > 10<<10 {
			t.Errorf("%s: %d bytes for a request of which %d bytes came", name, used, len(stream))
		}
	}
}

func TestDecodedValueHasNoSpareRoom(t *testing.T) {
	stream := encode(TodaysGeneration, opSet, "k", make([]byte, 100_000))
	var cuts []int
	for cut := 0; cut < len(stream); cut += 777 {
		cuts = append(cuts, cut)
	}
	reqs, _, err := decodeAll(TodaysGeneration, stream, cuts...)
	if err != nil || len(reqs) != 1 || cap(reqs[0].values[0]) != 100_000 {
		t.Errorf("%d requests, %v; want a value with room for 100000 bytes", len(reqs), err)
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
			if len(got) != len(whole) || gotBusy != busy || fmt.Sprint(gotErr) != fmt.Sprint(err) {
				t.Fatalf("in pieces %d requests, busy %v, %v; in one %d, %v, %v",
					len(got), gotBusy, gotErr, len(whole), busy, err)
			}
			for i := range got {
				if !sameRequest(whole[i], got[i]) {
					t.Fatalf("request %d in one piece and in pieces:\n%s", i, cmp.Diff(whole[i], got[i], equalRequests))
				}
			}
		}
	})
}

// encodeRequest is the inverse of decode.
func encodeRequest(g Generation, req *request) []byte {
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
	if req.op == opAdd {
		fields = append(fields, int(req.number))
	}
	return encode(g, req.op, fields...)
}
