// Package transport carries bytes between addresses over gRPC: calls, and watches by which each end notices the loss
// of the other. It knows nothing of groups, names and functions.
//
// A [Server] answers calls. A [Pool] makes calls, over one connection for each address, which it dials at the first
// call. There is one unary method and one stream. The path of both contains the protocol version, so that peers of
// different versions refuse each other's calls. Messages are bytes, without protobuf.
//
// A call runs once at most. gRPC's retries are off. gRPC itself repeats only a call whose stream never left this
// process, and a call that the peer says it did not process (GOAWAY or REFUSED_STREAM, RFC 9113).
//
// A Pool forgets a connection that could not be made. So the next call dials again: a refusing peer is reported at
// once, and a peer that returns is reached at once. The next call also replaces a broken connection.
//
// Server and Pool are safe for concurrent use.
package transport
