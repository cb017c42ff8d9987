package transport

import (
	"fmt"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// The protocol that both ends share. A change of the meaning of messages increments the version.
const (
	service     = "elasticrun.rpc.v1.Worker"
	callMethod  = "Call"
	watchMethod = "Watch"
	callPath    = "/" + service + "/" + callMethod
	watchPath   = "/" + service + "/" + watchMethod
)

// watchBegun is the only message of a server in a watch; a client sends only its hello. Either end says goodbye by
// ending the stream without an error.
const watchBegun = "b"

// Limits in bytes, the same at both ends. gRPC's default buffers and windows stay: larger ones gained nothing.
const (
	defaultMaxMessage = 64 << 20
	maxHeaders        = 16 << 10
)

// watchStream describes the watch to both ends.
var watchStream = grpc.StreamDesc{StreamName: watchMethod, ServerStreams: true, ClientStreams: true}

// parts is an outgoing message. Its parts are sent one after the other, without copying.
type parts [][]byte

func (p parts) size() int {
	n := 0
	for _, part := range p {
		n += len(part)
	}
	return n
}

// rawCodec passes bytes through: parts out, one slice of its own in.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

// Marshal copies nothing: gRPC reads the parts while it writes them to the socket.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	out, ok := v.(parts)
	if !ok {
		return nil, fmt.Errorf("encode %T: only bytes are carried", v)
	}
	buffers := make(mem.BufferSlice, 0, len(out))
	for _, part := range out {
		if len(part) > 0 {
			buffers = append(buffers, mem.SliceBuffer(part))
		}
	}
	return buffers, nil
}

// Unmarshal copies once, because gRPC reuses its buffers.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("decode %T: only bytes are carried", v)
	}
	*in = data.Materialize()
	return nil
}

// Name is a part of the content type.
func (rawCodec) Name() string { return "elasticrun" }

// messageLimit returns the limit for an option: the default for 0, and at most what gRPC can represent.
func messageLimit(option int) int {
	if option <= 0 {
		return defaultMaxMessage
	}
	return min(option, math.MaxInt32)
}
