// Package machine answers what a run asks about this machine: which agent of the run this is ([Identify]), whether an
// endpoint is this machine and its agent may host the store there ([Resolve], [HostChoice]), which claims keep a second
// host away ([ClaimRun]), and whether an earlier store of the run was here ([CreateMarker]).
//
// Claims and slots are sockets that the kernel releases when their holder dies, however that happens. Markers are files
// that outlive their process, but not the machine's boot. [Accept] serves the connections of a
// listener, for slots and for the store.
//
// All functions are safe for concurrent use. The package opens no store and decides nothing: package elastic uses what
// it finds.
package machine
