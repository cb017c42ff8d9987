// Package transport carries bytes between addresses over gRPC: calls, and watches by which two ends notice that the
// other one is gone. It knows nothing of groups, names and functions.
package transport
