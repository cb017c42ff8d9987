package tcpstore

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// readReply reads one reply to q from stream, split by pieces. It returns how much of the stream was read.
func readReply(q *query, stream []byte, pieces func(io.Reader) io.Reader) (a answer, n int, err error) {
	source := bytes.NewReader(stream)
	r := bufio.NewReader(pieces(source))
	err = replyReader{r}.read(q, &a)
	return a, len(stream) - source.Len() - r.Buffered(), err
}

func inOne(r io.Reader) io.Reader { return r }

func TestReplyInPieces(t *testing.T) {
	for _, p := range bothProtocols {
		for _, conv := range conversations(p) {
			for _, turn := range conv.turns {
				o, ok := p.meaning(turn.request[0])
				if !ok || ops[o].silent {
					continue // it has no reply of its own
				}
				q := &query{op: o, keys: make([]string, len(conv.turns[0].request)/12)}
				if o == opMultiGet {
					q.keys = q.keys[:2]
				}
				whole, n, err := readReply(q, turn.answer, inOne)
				if err != nil || n != len(turn.answer) {
					t.Errorf("%s: read %d of %x: %v", conv.name, n, turn.answer, err)
				}
				bytewise, n, err := readReply(q, turn.answer, iotest.OneByteReader)
				if err != nil || n != len(turn.answer) {
					t.Errorf("%s: read %d of %x byte by byte: %v", conv.name, n, turn.answer, err)
				}
				if diff := cmp.Diff(whole, bytewise, cmp.AllowUnexported(answer{})); diff != "" {
					t.Errorf("%s: in one piece and byte by byte:\n%s", conv.name, diff)
				}
			}
		}
	}
}

// meaning is the inverse of code.
func (p Protocol) meaning(b byte) (op, bool) {
	for o := range opBarrier + 1 {
		if code, ok := p.code(o); ok && code == b {
			return o, true
		}
	}
	return 0, false
}

func TestReplyWithLargeValues(t *testing.T) {
	for _, size := range []int{firstChunk - 1, firstChunk, firstChunk + 1, 2 * firstChunk, 1_000_003} {
		want := bytes.Repeat([]byte("value"), size)[:size]
		a, _, err := readReply(&query{op: opMultiGet, keys: []string{"a", "b"}}, replyOf(string(want), "b"), inOne)
		if err != nil || !bytes.Equal(a.values[0], want) || string(a.values[1]) != "b" {
			t.Errorf("%d bytes: %v", size, err)
		}
		if err == nil && cap(a.values[0]) > len(want)+len(want)/4 {
			t.Errorf("%d bytes are held in %d", size, cap(a.values[0]))
		}
	}
}

func TestReplyAllocatesNothingForClaims(t *testing.T) {
	claims := map[string]struct {
		q      query
		stream []byte
	}{
		"value":     {query{op: opGet}, append(replyOf(maxReply), "v"...)},
		"more":      {query{op: opGet}, append(replyOf(maxReply), make([]byte, firstChunk+1)...)},
		"list":      {query{op: opListKeys}, replyOf(maxListed, "/key")},
		"queue":     {query{op: opQueuePop}, replyOf(1<<62, maxReply)},
		"many keys": {query{op: opMultiGet, keys: make([]string, maxKeys)}, replyOf("v", maxReply/2)},
	}
	for name, claim := range claims {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 100 {
			_, _, err := readReply(&claim.q, claim.stream, inOne)
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%s: %v, want the end of the stream", name, err)
			}
		}
		runtime.ReadMemStats(&after)
		if used := (after.TotalAlloc - before.TotalAlloc) / 100; used > 24<<10 {
			t.Errorf("%s: %d bytes for an answer of which %d bytes came", name, used, len(claim.stream))
		}
	}
}

// FuzzReplies checks that any stream means the same in one piece and byte by byte, and that the result is within its
// limits and is what the stream holds.
func FuzzReplies(f *testing.F) {
	for version, calls := range recordings(f) {
		p := protocolOf(version)
		for _, call := range calls {
			for _, turn := range turns(p, call) {
				o, _ := p.meaning(turn.C2S[0])
				if o == opValidate {
					o = opPing
				}
				f.Add(byte(o), byte(2), turn.S2C)
			}
		}
	}
	f.Fuzz(func(t *testing.T, o, keys byte, stream []byte) {
		q := &query{op: op(o), keys: make([]string, keys), number: int64(nonce())}
		whole, n, err := readReply(q, stream, inOne)
		bytewise, m, bytewiseErr := readReply(q, stream, iotest.OneByteReader)
		if fmt.Sprint(err) != fmt.Sprint(bytewiseErr) || err == nil && n != m {
			t.Fatalf("read %d bytes, %v; byte by byte %d, %v", n, err, m, bytewiseErr)
		}
		if diff := cmp.Diff(whole, bytewise, cmp.AllowUnexported(answer{})); diff != "" {
			t.Fatalf("in one piece and byte by byte:\n%s", diff)
		}
		var held []byte
		for _, value := range whole.values {
			held = appendValue(held, value)
		}
		if err == nil && !bytes.HasSuffix(stream[:n], held) {
			t.Fatalf("read %q from %x", whole.values, stream[:n])
		}
		if whole.flag > 1 || len(whole.values) > len(stream)/8 {
			t.Fatalf("answer %+v to %d bytes", whole, len(stream))
		}
	})
}
