package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func join(parts [][]byte) []byte { return bytes.Join(parts, nil) }

var wireRequests = []request{
	{},
	{target: 1<<64 - 1, from: WorkerInfo{Name: "worker1", ID: 1}, function: "sum", payload: []byte("payload")},
	{target: 7, from: WorkerInfo{Name: "w", ID: -1}, function: strings.Repeat("f", 255)},
}

func TestWireRequest(t *testing.T) {
	for _, want := range wireRequests {
		message := join(want.encode())
		got, err := decodeRequest(message)
		if err != nil {
			t.Fatal(err)
		}
		if len(want.payload) == 0 {
			got.payload = want.payload
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(request{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for n := range len(message) - len(want.payload) {
			if _, err := decodeRequest(message[:n]); !errors.Is(err, ErrEncoding) {
				t.Errorf("the first %d bytes: %v", n, err)
			}
		}
	}
}

// Encoding and decoding keep the memory of the payload.
func TestWireCopiesNoPayload(t *testing.T) {
	payload := []byte("payload")
	if parts := (request{payload: payload}).encode(); &parts[len(parts)-1][0] != &payload[0] {
		t.Error("encode copied the payload")
	}
	if parts := encodeAnswer(payload, nil); &parts[len(parts)-1][0] != &payload[0] {
		t.Error("encodeAnswer copied the payload")
	}
	message := join(request{payload: payload}.encode())
	if r, err := decodeRequest(message); err != nil || &r.payload[6] != &message[len(message)-1] {
		t.Errorf("decodeRequest copied the payload: %v", err)
	}
	message = join(encodeAnswer(payload, nil))
	if got, err := decodeAnswer(message); err != nil || &got[6] != &message[len(message)-1] {
		t.Errorf("decodeAnswer copied the payload: %v", err)
	}
}

var wireErrors = []error{
	&RemoteError{Type: "*fs.PathError", Message: "open x:\nno", Stack: "\tmain.f\n"},
	&RemoteError{Type: "string", Panic: true},
	&NoFunctionError{},
	&NoFunctionError{Known: []string{"a", "b"}, More: 3},
	&TooLargeError{What: directionRequest, Size: 100, Limit: 10},
	&TooLargeError{What: directionAnswer, Size: 1 << 40, Limit: 1 << 39},
	&EncodingError{What: directionRequest, Wanted: "[]int", Err: errTest},
	&EncodingError{What: directionAnswer, Sent: "chan int", Err: errTest},
	ErrReplaced, ErrShutdown, ErrVersion,
}

func TestWireErrors(t *testing.T) {
	for _, want := range wireErrors {
		message := join(encodeAnswer([]byte("no payload"), want))
		payload, err := decodeAnswer(message)
		if payload != nil || err == nil || fmt.Sprintf("%T %v", err, err) != fmt.Sprintf("%T %v", want, want) {
			t.Errorf("%T %v arrived as %T %v, with payload %q", want, want, err, err, payload)
		}
		for _, kind := range []error{ErrNoFunction, ErrTooLarge, ErrEncoding, ErrReplaced, ErrShutdown, ErrVersion} {
			if errors.Is(err, kind) != errors.Is(want, kind) {
				t.Errorf("%v: errors.Is %v is %v", want, kind, errors.Is(err, kind))
			}
		}
		if _, err := decodeAnswer(append(message, 0)); !errors.Is(err, ErrEncoding) || errors.Is(err, ErrShutdown) {
			if !errors.Is(want, ErrNoFunction) || err == nil {
				t.Errorf("%v with an extra byte: %v", want, err)
			}
		}
	}
	// An error without a status of its own is encoded too, and so is the error of a malformed request.
	_, err := decodeAnswer(join(encodeAnswer(nil, fmt.Errorf("wrapped: %w", errTest))))
	if remote := (*RemoteError)(nil); !errors.As(err, &remote) || remote.Message != "wrapped: the test's own" {
		t.Errorf("another error: %v", err)
	}
	_, bad := decodeRequest([]byte{wireVersion, 0})
	if _, err := decodeAnswer(join(encodeAnswer(nil, bad))); !errors.Is(err, ErrEncoding) {
		t.Errorf("a malformed request: %v", err)
	}
}

func TestWireVersions(t *testing.T) {
	message := join(wireRequests[1].encode())
	message[0] = 9
	_, err := decodeRequest(message)
	if !errors.Is(err, ErrVersion) || err.Error() != "request: protocol version differs: the peer has version 9, this worker has version 1" {
		t.Errorf("a request: %v", err)
	}
	answer := join(encodeAnswer(nil, err))
	answer[0] = 9 // as a peer of the other version answers
	if _, err := decodeAnswer(answer); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "the peer has version 9") {
		t.Errorf("an answer: %v", err)
	}
}

func TestWireMalformedAnswers(t *testing.T) {
	for _, message := range []string{
		"", "\x01", "\x01\x63", "\x01\x01", "\x01\x01\x02", "\x01\x02",
		"\x01\x03\x00", "\x01\x05x", "\x01\x02\x00\x00\x00\x00\xff\xff\xff\xff",
	} {
		payload, err := decodeAnswer([]byte(message))
		if payload != nil || !errors.Is(err, ErrEncoding) || !strings.HasPrefix(err.Error(), "answer: encoding: malformed envelope: ") {
			t.Errorf("%q: %q, %v", message, payload, err)
		}
	}
}

// FuzzWire checks that each message is decoded or rejected, and that a decoded message has the same encoding again.
func FuzzWire(f *testing.F) {
	for _, r := range wireRequests {
		f.Add(join(r.encode()))
	}
	for _, err := range wireErrors {
		f.Add(join(encodeAnswer(nil, err)))
	}
	f.Add(join(encodeAnswer([]byte("payload"), nil)))
	f.Fuzz(func(t *testing.T, message []byte) {
		if r, err := decodeRequest(message); err == nil {
			if again := join(r.encode()); !bytes.Equal(again, message) {
				t.Errorf("request %x became %x", message, again)
			}
		} else if !errors.Is(err, ErrEncoding) && !errors.Is(err, ErrVersion) {
			t.Errorf("request: %v", err)
		}
		payload, err := decodeAnswer(message)
		if err == nil {
			if again := join(encodeAnswer(payload, nil)); !bytes.Equal(again, message) {
				t.Errorf("answer %x became %x", message, again)
			}
			return
		}
		_ = err.Error()
		_, second := decodeAnswer(join(encodeAnswer(nil, err)))
		if second == nil || fmt.Sprintf("%T", second) != fmt.Sprintf("%T", err) && !errors.Is(err, errMalformed) && !errors.Is(err, ErrVersion) {
			t.Errorf("%T %v became %T %v", err, err, second, second)
		}
	})
}

func BenchmarkWire(b *testing.B) {
	r := request{target: 1, from: WorkerInfo{Name: "worker0"}, function: "sum", payload: make([]byte, 64<<10)}
	message := join(r.encode())
	answer := join(encodeAnswer(r.payload, nil))
	for name, do := range map[string]func() error{
		"encode request": func() error { _ = r.encode(); return nil },
		"decode request": func() error { _, err := decodeRequest(message); return err },
		"encode answer":  func() error { _ = encodeAnswer(r.payload, nil); return nil },
		"decode answer":  func() error { _, err := decodeAnswer(answer); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
