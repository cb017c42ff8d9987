// Package peeruid finds the user whose process has the other end of a TCP connection on this machine.
//
//	New     makes a Finder, and tests on a connection of its own that the kernel answers   (peeruid_linux.go)
//	Owner   asks about one connection                                                      (peeruid_linux.go)
//
// There are two ways to ask: sock_diag(7), which finds one socket by its addresses and ports (sockdiag_linux.go), and
// /proc/net/tcp, which lists all sockets (procnet_linux.go). The second way serves where a sandbox forbids the first.
// One reading of the lists answers all calls that wait for it. It begins after each of these calls.
//
// # What an answer means
//
// The kernel knows which user made a socket, and keeps that when the socket is passed to another process or when the
// process changes its user. So a program that connects as root and then changes its user counts as root.
//
// A socket that no process has any more has no user: the kernel then shows user 0, without an inode. Such an answer
// counts as no answer. Otherwise any user could count as root by closing the connection in time.
//
// While our end of a connection is open, no other socket of this machine can be connected with the peer's addresses and
// ports. Owner checks after the answer that our end is open, so the answer is about the peer's socket and not about one
// that took its place.
//
// Only sockets in the network namespace of the calling thread are found, and only Linux can be asked. A Finder may be
// used by any number of goroutines.
package peeruid
