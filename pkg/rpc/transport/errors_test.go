package transport

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestExplain(t *testing.T) {
	const limit = 1000
	for _, tc := range []struct {
		name string
		err  error
		is   error
		text string
	}{
		{"gone", status.Error(codes.Unavailable, "EOF"), ErrConnection, "connection failed: EOF"},
		{
			"wrapped", status.Error(codes.Unavailable, `connection error: desc = "transport: \"x\"\nmore"`),
			ErrConnection, `connection failed: transport: "x"`,
		},
		{"lines", status.Error(codes.Internal, "one\ntwo"), ErrProtocol, "no gRPC: Internal: one"},
		{"late", status.Error(codes.DeadlineExceeded, "late"), ErrTimeout, "timed out: context deadline exceeded"},
		{"late, as contexts say it", status.Error(codes.DeadlineExceeded, "late"), context.DeadlineExceeded, "timed out: context deadline exceeded"},
		{"other service", status.Error(codes.Unimplemented, "unknown service x"), ErrVersion, "other version or service: unknown service x"},
		{
			"a web server", status.Error(codes.Unimplemented, "unexpected HTTP status code received from server: 404 (Not Found)"),
			ErrProtocol, "no gRPC: unexpected HTTP status code received from server: 404 (Not Found)",
		},
		{
			"request", status.Error(codes.ResourceExhausted, "grpc: received message larger than max (900 vs. 800)"),
			ErrTooLarge, "message too large: the request has 900 bytes, and the peer takes 800 at most",
		},
		{
			"answer", status.Error(codes.ResourceExhausted, "grpc: received message larger than max (1001 vs. 1000)"),
			ErrTooLarge, "message too large: the answer has 1001 bytes, and this side takes 1000 at most",
		},
		{"some size", status.Error(codes.ResourceExhausted, "too much"), ErrTooLarge, "message too large: too much"},
		{
			"answer, told", status.Error(codes.OutOfRange, "answer of 99 bytes, limit 9"),
			ErrTooLarge, "message too large: the answer has 99 bytes, and the peer takes 9 at most",
		},
		{"answer, told badly", status.Error(codes.OutOfRange, "?"), ErrTooLarge, "message too large: the answer is above the limit of the peer"},
		{"refused", status.Error(codes.FailedPrecondition, "not me"), ErrRefused, "watch refused: not me"},
		{"half an answer", status.Error(codes.Internal, "unexpected EOF"), ErrProtocol, "no gRPC: Internal: unexpected EOF"},
		{"no status", errors.New("what?"), ErrProtocol, "no gRPC: Unknown: what?"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := explain(tc.err, limit)
			if !errors.Is(err, tc.is) || err.Error() != tc.text {
				t.Errorf("got %q, want %q", err, tc.text)
			}
		})
	}
}

func TestAttemptExplain(t *testing.T) {
	dialling := errors.New("no route")
	for _, tc := range []struct {
		name          string
		attempt       *attempt
		plain, secure string
	}{
		{"not made", &attempt{err: dialling}, "connection failed: no route", "connection failed: no route"},
		{
			"says nothing",
			&attempt{},
			"connection failed: the peer accepts, but says nothing", "connection failed: the peer accepts, but says nothing",
		},
		{"leaves", &attempt{left: true}, "connection failed: the peer ended it without a word, as one does that expects TLS", ""},
		{
			"speaks", &attempt{left: true, first: []byte("SSH-2.0-O")},
			`no gRPC: the peer's first bytes are "SSH-2.0-O"`, `no gRPC: the peer's first bytes are "SSH-2.0-O"`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for secure, want := range map[bool]string{false: tc.plain, true: tc.secure} {
				got := ""
				if err := tc.attempt.explain(secure); err != nil {
					got = err.Error()
				}
				if got != want {
					t.Errorf("TLS %v: got %q, want %q", secure, got, want)
				}
			}
		})
	}
}

func TestExplainFirst(t *testing.T) {
	for _, tc := range []struct {
		name          string
		first         string
		plain, secure error
	}{
		{name: "nothing"},
		{name: "TLS handshake", first: "\x16\x03\x03\x00\x7a\x02\x00\x00\x76", plain: ErrConnection},
		{name: "TLS alert", first: "\x15\x03\x01\x00\x02\x02\x46", plain: ErrConnection},
		{name: "HTTP/2", first: "\x00\x00\x18\x04\x00\x00\x00\x00\x00", secure: ErrConnection},
		{name: "HTTP/2 goes", first: "\x00\x00\x18\x07\x00\x00\x00\x00\x00", secure: ErrConnection},
		{name: "HTTP/1", first: "HTTP/1.1 ", plain: ErrProtocol, secure: ErrProtocol},
		{name: "ssh", first: "SSH-2.0-O", plain: ErrProtocol, secure: ErrProtocol},
		{name: "half a header", first: "\x00\x00", plain: ErrProtocol, secure: ErrProtocol},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := explainFirst([]byte(tc.first), false); !errors.Is(err, tc.plain) {
				t.Errorf("plain: %v, want %v", err, tc.plain)
			}
			if err := explainFirst([]byte(tc.first), true); !errors.Is(err, tc.secure) {
				t.Errorf("with TLS: %v, want %v", err, tc.secure)
			}
		})
	}
}
