// Package transport carries bytes between addresses over gRPC: calls, and watches by which two ends notice that the
// other one is gone. It knows nothing of groups, names and functions.
//
// A [Server] answers, a [Pool] asks; it holds one connection for each address, made at the first call. There is one unary
// method and one stream, both below a path that has the version in it, so that peers of different versions refuse each
// other's calls. Messages are bytes as they are, without protobuf.
//
// A call is carried out once at most. gRPC's retries are off; what it still repeats by itself is a call whose stream never
// left this process, and one that the peer has said it did not look at (a GOAWAY below it, or REFUSED_STREAM).
//
// A connection that could not be made is forgotten together with its failure: the next call tries anew, so that a peer that refuses is
// reported as fast as it refuses, and one that is back is reached at once. One that broke is made again by the next call.
package transport
