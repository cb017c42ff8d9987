package tcpstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/storetest"
)

// testKnownDifferences shows where this server replies differently than torch's server without libuv. It follows
// torch's libuv server there.
func (d *torchDriver) testKnownDifferences(t *testing.T) {
	const closed = "" // no reply, only the end of the connection
	longKey, longValue := strings.Repeat("k", 9000), strings.Repeat("v", 9<<20)
	manyKeys := func(p Protocol) []byte {
		return append(encode(p, opCheck, 1<<17+1), bytes.Repeat(appendValue(nil, []byte("k")), 1<<17+1)...)
	}
	tests := []struct {
		name        string
		only        Protocol // zero: both
		request     func(p Protocol) []byte
		torch, ours string
	}{
		{
			name:    "get of a missing key",
			request: func(p Protocol) []byte { return encode(p, opGet, "/missing") },
			torch:   closed, ours: string(appendInt(nil, 0)),
		},
		{
			name: "multi_get of a missing key", only: ProtocolV2,
			request: func(p Protocol) []byte { return encode(p, opMultiGet, 1, "/missing") },
			torch:   closed, ours: string(appendInt(nil, 0)),
		},
		{
			name:    "a key over 8 KiB",
			request: func(p Protocol) []byte { return encode(p, opAdd, longKey, 5) },
			torch:   string(appendInt(nil, 5)), ours: closed,
		},
		{
			name:    "a value over 8 MiB",
			request: func(p Protocol) []byte { return encode(p, opCompareSet, "/long", "", longValue) },
			torch:   string(appendValue(nil, []byte(longValue))), ours: closed,
		},
		{name: "more than 128 Ki keys", request: manyKeys, torch: string([]byte{replyNotReady}), ours: closed},
	}
	torch, p := d.lane(t).server, protocolOf(d.version)
	_, ours := startServer(t, ServerOptions{})
	for _, tt := range tests {
		if tt.only != protocolUnknown && tt.only != p {
			continue
		}
		if d.libuv {
			tt.torch = tt.ours
		}
		for _, server := range []struct{ name, addr, want string }{
			{"torch", torch, tt.torch}, {"ours", ours, tt.ours},
		} {
			got, err := lastAnswer(server.addr, p, tt.request(p))
			if err != nil || got != server.want {
				t.Errorf("%s: %s gives %s %v, want %s",
					tt.name, server.name, storetest.Text(got), err, storetest.Text(server.want))
			}
		}
	}
}

// lastAnswer sends a request and nothing after it, and returns all that the server says until it closes the connection.
func lastAnswer(addr string, p Protocol, request []byte) (string, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(testTimeout))
	if p == ProtocolV2 {
		request = slices.Concat(handshake, request)
	}
	sent := make(chan error, 1)
	go func() {
		nc.Write(request) // fails if the server has already closed the connection
		sent <- nc.(*net.TCPConn).CloseWrite()
	}()
	answer, err := io.ReadAll(nc)
	<-sent
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "", fmt.Errorf("the connection stays open: %w", err)
	}
	return string(answer), nil // a reset is an end too
}
