package transport

import (
	"context"
	"errors"
	"testing"
	"time"

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
		{"lines", status.Error(codes.Internal, "one\ntwo"), ErrConnection, "connection failed: Internal: one"},
		{
			"a deadline that is not the call's", status.Error(codes.DeadlineExceeded, "upstream"),
			ErrConnection, "connection failed: DeadlineExceeded: upstream",
		},
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
		{
			"some size", status.Error(codes.ResourceExhausted, "something larger than max"),
			ErrTooLarge, "message too large: something larger than max",
		},
		{"some limit", status.Error(codes.ResourceExhausted, "too many calls"), ErrConnection, "connection failed: ResourceExhausted: too many calls"},
		{
			"answer, known text", status.Error(codes.OutOfRange, "answer of 99 bytes, limit 9"),
			ErrTooLarge, "message too large: the answer has 99 bytes, and the peer takes 9 at most",
		},
		{"answer, unknown text", status.Error(codes.OutOfRange, "?"), ErrTooLarge, "message too large: the answer is above the limit of the peer"},
		{"refused", status.Error(codes.FailedPrecondition, "not me"), ErrRefused, "watch refused: not me"},
		{
			"refused, in words of gRPC's", status.Error(codes.FailedPrecondition, "unexpected HTTP status code"),
			ErrRefused, "watch refused: unexpected HTTP status code",
		},
		{"half an answer", status.Error(codes.Internal, "unexpected EOF"), ErrConnection, "connection failed: Internal: unexpected EOF"},
		{"cut off", status.Error(codes.Canceled, "RST_STREAM"), ErrConnection, "connection failed: Canceled: RST_STREAM"},
		{"a proxy without permission", status.Error(codes.PermissionDenied, "no access"), ErrConnection, "connection failed: PermissionDenied: no access"},
		{
			"a proxy that times out", status.Error(codes.Unavailable, "unexpected HTTP status code received from server: 502 (Bad Gateway)"),
			ErrConnection, "connection failed: unexpected HTTP status code received from server: 502 (Bad Gateway)",
		},
		{
			"a web server that fails", status.Error(codes.Unknown, "unexpected HTTP status code received from server: 500 (Internal Server Error)"),
			ErrProtocol, "no gRPC: unexpected HTTP status code received from server: 500 (Internal Server Error)",
		},
		{
			"a web server that refuses", status.Error(codes.Unauthenticated, "unexpected HTTP status code received from server: 401 (Unauthorized)"),
			ErrProtocol, "no gRPC: unexpected HTTP status code received from server: 401 (Unauthorized)",
		},
		{
			"no status of HTTP", status.Error(codes.Internal, "malformed header: missing HTTP status; malformed header: missing HTTP content-type"),
			ErrProtocol, "no gRPC: malformed header: missing HTTP status; malformed header: missing HTTP content-type",
		},
		{"a strange word", strange([]byte("x")), ErrProtocol, `no gRPC: the peer says "x" in a watch`},
		{"no status", errors.New("what?"), ErrConnection, "connection failed: Unknown: what?"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := explain(tc.err, limit)
			if !errors.Is(err, tc.is) || err.Error() != tc.text {
				t.Errorf("got %q, want %q", err, tc.text)
			}
		})
	}
}

// TestReason tests the cases that are decided before the gRPC code.
func TestReason(t *testing.T) {
	over, end := context.WithTimeout(t.Context(), 0)
	defer end()
	soon, end := context.WithTimeout(t.Context(), time.Hour)
	defer end()
	for _, tc := range []struct {
		name     string
		ctx      context.Context //nolint:containedctx // a table of calls
		closedBy error
		code     codes.Code
		want     error
	}{
		{"the deadline", over, nil, codes.DeadlineExceeded, ErrTimeout},
		{"the deadline, cut off by the peer", over, nil, codes.Canceled, ErrTimeout},
		{"the deadline, in the middle of an answer", over, nil, codes.Internal, ErrTimeout},
		{"the deadline, by the peer's clock", soon, nil, codes.DeadlineExceeded, ErrTimeout},
		{"the deadline, by the peer's clock", soon, nil, codes.DeadlineExceeded, context.DeadlineExceeded},
		{"a deadline of another context", t.Context(), nil, codes.DeadlineExceeded, ErrConnection},
		{"refused before the deadline", over, nil, codes.FailedPrecondition, ErrRefused},
		{"closed", t.Context(), ErrClosed, codes.Canceled, ErrClosed},
		{"closed in the middle of an answer", t.Context(), ErrClosed, codes.Internal, ErrClosed},
		{"closed, and the connection is gone", t.Context(), ErrClosed, codes.Unavailable, ErrClosed},
		{"closed after the answer", t.Context(), ErrClosed, codes.FailedPrecondition, ErrRefused},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &conn{closedBy: tc.closedBy}
			if err := c.reason(tc.ctx, status.Error(tc.code, "text")); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestAttemptExplain(t *testing.T) {
	dialing := errors.New("no route")
	for _, tc := range []struct {
		name          string
		attempt       *attempt
		plain, secure string
	}{
		{"not made", &attempt{err: dialing}, "connection failed: no route", "connection failed: no route"},
		{
			"says nothing",
			&attempt{},
			"connection failed: the peer accepts connections but sends nothing", "connection failed: the peer accepts connections but sends nothing",
		},
		{"leaves", &attempt{left: true}, "connection failed: the peer closed it at once; does it expect TLS?", ""},
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
		{name: "half a header", first: "\x00\x00"},
		{name: "more of a header", first: "\x00\x00\x18\x04\x00\x00"},
		{name: "no header", first: "\x00\x00\x18\x05", plain: ErrProtocol, secure: ErrProtocol},
		{name: "no header either", first: "\x00\x00\x18\x04\x00\x00\x00\x00\x01", plain: ErrProtocol, secure: ErrProtocol},
		{name: "half a record", first: "\x16"},
		{name: "no record", first: "\x16\x16", plain: ErrProtocol, secure: ErrProtocol},
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
